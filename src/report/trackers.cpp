// SPDX-License-Identifier: MIT
#include "finetune/report/trackers.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/mount.h"
#include "finetune/base/text.h"
#include "report/tracker_script.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kTrackerPause = std::chrono::milliseconds(20);
constexpr double kSearchSeconds = 60;
constexpr size_t kMostOutput = size_t{64} << 10;

// An anonymous file that a process uses as standard input or output.
class MemoryStream {
 public:
  MemoryStream() : descriptor_(::memfd_create("finetune-tracker", MFD_CLOEXEC)) {
    if (descriptor_ < 0) {
      throw Error(ErrorKind::kIo, std::string("no memory for a stream: ") + std::strerror(errno));
    }
  }
  ~MemoryStream() { ::close(descriptor_); }
  MemoryStream(const MemoryStream&) = delete;
  MemoryStream& operator=(const MemoryStream&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }

  void fill(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        throw Error(ErrorKind::kIo, std::string("a stream is full: ") + std::strerror(errno));
      }
      text.remove_prefix(static_cast<size_t>(written));
    }
    (void)::lseek(descriptor_, 0, SEEK_SET);
  }

  // Returns the last kMostOutput bytes of the output.
  [[nodiscard]] std::string text() const {
    const off_t size = ::lseek(descriptor_, 0, SEEK_END);
    const off_t first = std::max<off_t>(0, size - static_cast<off_t>(kMostOutput));
    std::string text(static_cast<size_t>(std::max<off_t>(0, size - first)), '\0');
    const ssize_t count = ::pread(descriptor_, text.data(), text.size(), first);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
    return text;
  }

 private:
  int descriptor_;
};

struct ScriptResult {
  bool was_ended = false;
  int code = 0;  // 128 + the signal's number if a signal ended it
  std::string output;
};

pid_t start_python(const std::string& python, const char* script, const MemoryStream& input,
                   const MemoryStream& output) {
  pid_t process = -1;
  const int problem =
      start_program({.words = {python, "-c", script},
                     .streams = {input.descriptor(), output.descriptor(), output.descriptor()},
                     .group = ChildGroup::kOwn},
                    process);
  if (problem == 0) return process;
  throw Error(ErrorKind::kIo, "'" + python + "' cannot be started: " + std::strerror(problem));
}

// Throws Error(kIo) if the interpreter cannot be started.
ScriptResult run_python(const std::string& python, const char* script, const std::string& input,
                        const std::function<bool()>& gives_up) {
  const MemoryStream in;
  const MemoryStream out;
  in.fill(input);
  const pid_t process = start_python(python, script, in, out);
  ScriptResult result;
  int status = 0;
  while (!has_ended(process, status)) {
    if (gives_up()) {
      result.was_ended = true;
      ::kill(-process, SIGKILL);
      wait_for_end(process, status);
      break;
    }
    std::this_thread::sleep_for(kTrackerPause);
  }
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.output = out.text();
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Returns the interpreter in the first line of a command's script in PATH; empty if there is none.
std::string interpreter_of_command(const std::string& command) {
  const char* path = std::getenv("PATH");
  const std::string folders = path != nullptr ? path : "";
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    std::ifstream file(join_path(folders.substr(begin, end - begin), command));
    begin = end + 1;
    std::string line;
    if (!std::getline(file, line) || !line.starts_with("#!/")) continue;
    const std::string interpreter = line.substr(2, line.find(' ') - 2);
    if (file_name(interpreter).starts_with("python")) return interpreter;
  }
  return "";
}

// Ignores folders named like the package, which earlier runs leave in the current folder.
bool has_package(const std::string& python, const std::string& package) {
  constexpr char kSearch[] =
      "import sys\n"
      "sys.path[:] = [folder for folder in sys.path if folder]\n"
      "import importlib.util\n"
      "found = importlib.util.find_spec(sys.stdin.read())\n"
      "sys.exit(0 if found and found.origin else 1)\n";
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSearchSeconds);
  try {
    const ScriptResult result = run_python(python, kSearch, package,
                                           [&] { return std::chrono::steady_clock::now() >= end; });
    return !result.was_ended && result.code == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool is_package_tracker(const std::string& name) { return name == "wandb" || name == "mlflow"; }

std::string tracker_interpreter(const std::string& tracker) {
  const std::vector<std::string> interpreters =
      python_interpreters(interpreter_of_command(tracker));
  for (const std::string& python : interpreters) {
    if (has_package(python, tracker)) return python;
  }
  throw Error(ErrorKind::kConfig,
              "the Python package " + tracker + " is not installed (" + join(interpreters) +
                  "): install it ('python3 -m pip install " + tracker +
                  "'), name an interpreter that has it in FINETUNE_PYTHON, or leave '" + tracker +
                  "' out");
}

std::string write_tracked_run(const TrackedRun& run, const Json& config,
                              const std::function<bool()>& gives_up) {
  const Json job = {{"tracker", run.tracker}, {"folder", resolved_path(run.folder)},
                    {"metrics", run.metrics}, {"run_id", run.run_id},
                    {"name", run.name},       {"project", run.project},
                    {"config", config},       {"finished", run.is_finished}};
  const ScriptResult result =
      run_python(run.python, kTrackerScript,
                 job.dump(-1, ' ', true, Json::error_handler_t::replace), gives_up);
  if (result.was_ended) throw Error(ErrorKind::kIo, run.tracker + " took too long");
  const std::vector<std::string> lines = lines_of(result.output);
  const std::string last = lines.empty() ? std::string() : lines.back();
  constexpr std::string_view kWrote = "wrote ";
  if (result.code == 0 && last.starts_with(kWrote)) return last.substr(kWrote.size());
  throw Error(ErrorKind::kIo, run.tracker + " failed: " +
                                  (last.empty() ? format_text("exit code {}", result.code) : last));
}

}  // namespace finetune
