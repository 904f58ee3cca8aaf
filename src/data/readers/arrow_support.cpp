// SPDX-License-Identifier: MIT
#include "finetune/data/arrow_support.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "data/readers/arrow_process.h"
#include "finetune/base/child_process.h"

namespace finetune {
namespace {

// Returns the first line that a program prints; empty if it fails.
std::string first_line_of(const std::vector<std::string>& words) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  pid_t process = -1;
  const int problem =
      start_program({.words = words, .streams = {kNullStream, ends[1], kNullStream}}, process);
  ::close(ends[1]);
  std::string line;
  if (FILE* pipe = ::fdopen(ends[0], "r"); pipe != nullptr) {
    std::array<char, 256> buffer = {};
    if (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
      line = buffer.data();
    }
    (void)std::fclose(pipe);
  }
  int status = 0;
  if (problem != 0 || !wait_for_end(process, status) || status != 0) return "";
  while (!line.empty() && line.back() <= ' ') line.pop_back();
  return line;
}

}  // namespace

std::string describe_arrow_support() {
  for (const std::string& python : arrow_interpreters()) {
    const std::string version =
        first_line_of({python, "-c", "import pyarrow; print(pyarrow.__version__)"});
    if (!version.empty()) return "pyarrow " + version + " (" + python + ")";
  }
  return "";
}

}  // namespace finetune
