// SPDX-License-Identifier: MIT
// Error messages if Python, pyarrow or the file is not usable. tests/parity/test_arrow.py compares
// rows of real files with pyarrow's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/data/rows.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::TemporaryFolder;

// Replaces the interpreter by a shell script of the test.
class ArrowRecords : public ::testing::Test {
 protected:
  ~ArrowRecords() override { ::unsetenv("FINETUNE_PYTHON"); }

  void python_says(const std::string& shell) {
    const std::string path = folder_.write("python", "#!/bin/sh\n" + shell + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ::setenv("FINETUNE_PYTHON", path.c_str(), 1);
  }

  [[nodiscard]] std::vector<std::string> rows() const {
    std::vector<std::string> found;
    visit_rows({file_}, {}, [&](const DataRow& row) {
      found.push_back(row.position.substr(row.position.find_last_of('/') + 1) + " " +
                      row.columns.dump());
      return true;
    });
    return found;
  }
  [[nodiscard]] std::string message() const {
    return message_of<Error>([this] { static_cast<void>(rows()); });
  }

  TemporaryFolder folder_;
  std::string file_ = folder_.write("a.parquet", "PAR1");
};

TEST_F(ArrowRecords, AreRowsWithTheirNumbers) {
  python_says(R"(printf 'C[2]\nR{"text": "a"}\nR{"text": "b"}\nD2\n')");
  EXPECT_THAT(rows(),
              ElementsAre(R"(a.parquet, row 1 {"text":"a"})", R"(a.parquet, row 2 {"text":"b"})"));
}

TEST_F(ArrowRecords, NameTheColumnThatIsNoTextOrReplaceItsBytes) {
  python_says(R"(printf 'C[2]\nR{"text": "a", "n": {"x": 1}, "b": "a"}\n'
              printf 'R{"text": "\\"b", "n": {"x": 2}, "b": "c\377"}\nD2\n')");
  EXPECT_GOLDEN(message());
  std::string found;
  RowOptions options;
  options.replace_broken_utf8 = true;
  visit_rows({file_}, options, [&](const DataRow& row) {
    found = row.columns["b"].get<std::string>();
    return true;
  });
  EXPECT_EQ(found, "c\xEF\xBF\xBD");
}

TEST_F(ArrowRecords, SayThatPyarrowIsMissing) {
  python_says(R"(printf 'N"No module named pyarrow"\n')");
  EXPECT_GOLDEN(message());
}

TEST_F(ArrowRecords, SayThatThereIsNoPython) {
  ::setenv("FINETUNE_PYTHON", (folder_ / "none").c_str(), 1);
  EXPECT_GOLDEN(message());
}

TEST_F(ArrowRecords, SayWhatPyarrowSaysOfTheFile) {
  python_says(R"(printf 'C[2]\nR{"text": "a"}\nE"bad page"\n')");
  EXPECT_GOLDEN(message());
}

TEST_F(ArrowRecords, DoNotEndEarlyWhereTheProcessDoes) {
  python_says(R"(printf 'C[2]\nR{"text": "a"}\n'; kill -9 $$)");
  EXPECT_GOLDEN(message());
  python_says(R"(printf 'C[2]\nR{"text": "a"}\nD2\n')");
  EXPECT_GOLDEN(message());
  python_says(R"(printf 'C[2]\nR{"text": "a"}\nR{"te'; exit 3)");
  EXPECT_GOLDEN(message());
}

TEST_F(ArrowRecords, LeaveNoProcessBehind) {
  const std::string written = folder_ / "pid";
  python_says("echo $$ > " + written + R"(; printf 'C[2000]\n'
              printf 'R{"text": "%s"}\n' $(seq 1500); exec sleep 100)");
  visit_rows({file_}, {}, [](const DataRow&) { return false; });
  std::ifstream file(written);
  int process = 0;
  ASSERT_TRUE(file >> process);
  EXPECT_FALSE(std::filesystem::exists("/proc/" + std::to_string(process)));
}

}  // namespace
}  // namespace finetune
