// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "finetune/base/child_process.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;

// Sets or unsets FINETUNE_PYTHON as long as it lives.
class NamedPython {
 public:
  explicit NamedPython(const char* value) {
    if (const char* before = std::getenv("FINETUNE_PYTHON")) before_ = before;
    value != nullptr ? ::setenv("FINETUNE_PYTHON", value, 1) : ::unsetenv("FINETUNE_PYTHON");
  }
  ~NamedPython() {
    before_.empty() ? ::unsetenv("FINETUNE_PYTHON")
                    : ::setenv("FINETUNE_PYTHON", before_.c_str(), 1);
  }
  NamedPython(const NamedPython&) = delete;
  NamedPython& operator=(const NamedPython&) = delete;

 private:
  std::string before_;
};

TEST(PythonInterpreters, AreTheNamedOneAloneElseThePreferredAndThePaths) {
  {
    const NamedPython named("/opt/python");
    EXPECT_THAT(python_interpreters("/venv/python"), ElementsAre("/opt/python"));
  }
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const NamedPython none(unset);
    EXPECT_THAT(python_interpreters("/venv/python"), ElementsAre("/venv/python", "python3"));
    EXPECT_THAT(python_interpreters(""), ElementsAre("python3"));
  }
}

}  // namespace
}  // namespace finetune
