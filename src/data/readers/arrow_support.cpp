// SPDX-License-Identifier: MIT
#include "finetune/data/arrow_support.h"

#include <array>
#include <cstdio>

#include "data/readers/arrow_process.h"
#include "finetune/base/printable.h"

namespace finetune {
namespace {

// Returns the first line that a shell command prints; empty if it fails.
std::string first_line_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::array<char, 256> buffer = {};
  const bool has_line = std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr;
  const bool succeeded = ::pclose(pipe) == 0;
  std::string line = has_line && succeeded ? buffer.data() : "";
  while (!line.empty() && line.back() <= ' ') line.pop_back();
  return line;
}

}  // namespace

std::string describe_arrow_support() {
  for (const std::string& python : arrow_interpreters()) {
    const std::string version =
        first_line_of(shell_word(python) +
                      " -c 'import pyarrow; print(pyarrow.__version__)' 2>/dev/null </dev/null");
    if (!version.empty()) return "pyarrow " + version + " (" + python + ")";
  }
  return "";
}

}  // namespace finetune
