// SPDX-License-Identifier: MIT
#include "cli/process/own_runs.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"

namespace finetune::cli {
namespace {

std::string& own_program() {
  static std::string file = "/proc/self/exe";
  return file;
}

}  // namespace

void set_own_program(std::string file) { own_program() = std::move(file); }

OwnRun run_self(const Arguments& arguments, const std::string& purpose) {
  ChildProgram program = {.words = {"finetune"}, .file = own_program()};
  program.words.insert(program.words.end(), arguments.begin(), arguments.end());
  pid_t child = 0;
  if (start_program(program, child) != 0) {
    throw Error(ErrorKind::kIo, "cannot start finetune again " + purpose);
  }
  int status = 0;
  rusage usage = {};
  bool is_forwarded = false;
  while (::wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
    if (!interrupt::is_requested() || is_forwarded) continue;
    interrupt::forward(child, SIGTERM);
    is_forwarded = true;
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .peak = static_cast<int64_t>(usage.ru_maxrss) * 1024};
}

WrittenPeak read_written_peak(const std::string& path) {
  if (!FileSystem::local().exists(path)) return {};
  const nlohmann::ordered_json json = read_json_file(path);
  return {.device = json.value("device", int64_t{0}),
          .reclaimable = json.value("reclaimable", int64_t{0})};
}

ScratchFolder::ScratchFolder(const std::string& purpose) {
  const char* base = std::getenv("TMPDIR");
  path_ = join_path(base != nullptr && *base != '\0' ? base : "/tmp",
                    "finetune-" + purpose + "-XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ErrorKind::kIo,
                "cannot make a temporary folder '" + path_ + "'; name a place with TMPDIR");
  }
}

ScratchFolder::~ScratchFolder() {
  try {
    FileSystem::local().remove_tree(path_);
  } catch (const Error&) {  // left behind; harmless
  }
}

}  // namespace finetune::cli
