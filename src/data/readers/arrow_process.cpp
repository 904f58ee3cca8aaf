// SPDX-License-Identifier: MIT
#include "data/readers/arrow_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "data/readers/arrow_script.h"
#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

// Returns the interpreter that a build folder was configured with; empty if the program is
// installed.
std::string interpreter_of_build_folder() {
  std::array<char, 4096> program = {};
  if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0) return "";
  std::ifstream file(join_path(parent_path(program.data()), FINETUNE_BUILD_PYTHON_FILE));
  std::string path;
  std::getline(file, path);
  return path;
}

}  // namespace

ArrowProcess::ArrowProcess(const std::string& python, const std::string& path,
                           const std::string& kind, int64_t first)
    : path_(path) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kIo,
                "'" + path + "': no pipe to read it through: " + std::strerror(errno));
  }
  const int problem =
      start_program({.words = {python, "-c", kArrowScript, path, kind, std::to_string(first)},
                     .streams = {kNullStream, ends[1], kNullStream},
                     .group = ChildGroup::kOwn},
                    process_);
  ::close(ends[1]);
  pipe_ = ends[0];
  if (problem == 0) return;
  ::close(pipe_);
  throw Error(ErrorKind::kData,
              "'" + path + "': '" + python + "' cannot be started: " + std::strerror(problem));
}

ArrowProcess::~ArrowProcess() {
  ::close(pipe_);
  if (process_ >= 0) kill_and_wait(process_);
}

size_t ArrowProcess::read(void* data, size_t size) {
  while (true) {
    const ssize_t count = ::read(pipe_, data, size);
    if (count >= 0) {
      offset_ += static_cast<uint64_t>(count);
      return static_cast<size_t>(count);
    }
    if (errno != EINTR) {
      throw Error(ErrorKind::kIo, "'" + path_ + "': reading failed: " + std::strerror(errno));
    }
  }
}

std::string ArrowProcess::ending() {
  int status = 0;
  if (!wait_for_end(process_, status)) return "it is not known how";
  process_ = -1;
  if (WIFSIGNALED(status)) return format_text("signal {}", WTERMSIG(status));
  return format_text("exit code {}", WEXITSTATUS(status));
}

std::vector<std::string> arrow_interpreters() {
  const std::string built_with = interpreter_of_build_folder();
  const bool is_there = !built_with.empty() && ::access(built_with.c_str(), X_OK) == 0;
  return python_interpreters(is_there ? built_with : "");
}

}  // namespace finetune
