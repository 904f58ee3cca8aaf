// SPDX-License-Identifier: MIT
#include <chrono>
#include <cstdio>
#include <iostream>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/printable.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::cli {
namespace {

constexpr size_t kLongestNote = 2'000;  // bytes, as in a log line

std::string age_text(int64_t created_unix) {
  if (created_unix <= 0) return "unknown";
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const int64_t seconds = std::max<int64_t>(0, now - created_unix);
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  if (seconds < 172800) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " d";
}

}  // namespace

int checkpoints_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune checkpoints OUTPUT_DIR [--verify]\n\n"
                 "Lists a run's checkpoints with step, size, age and whether each is whole.\n"
                 "--verify reads every byte; without it manifest and sizes are compared.\n"
                 "Exit code 3 where checkpoints are there but none is whole.\n";
    return kExitFinished;
  }
  const bool verify = reader.take_flag("--verify");
  if (reader.rest().size() != 1 || reader.rest()[0].starts_with("-")) {
    throw Error(ErrorKind::kUsage, "finetune checkpoints takes one folder: the run's output_dir");
  }
  const std::string folder = reader.rest()[0];
  FileSystem& files = FileSystem::local();
  if (files.type(folder) == FileType::kMissing) {
    throw Error(ErrorKind::kUsage, "there is no folder '" + folder + "'");
  }
  const auto entries = checkpoint::list_checkpoints(files, folder, verify);
  if (entries.empty()) {
    std::cout << "no checkpoints in " << folder << "\n";
    return kExitFinished;
  }
  bool any_whole = false;
  std::cout << "    step   size (MiB)        age  state\n";
  for (const auto& entry : entries) {
    any_whole = any_whole || entry.whole;
    char line[80];
    std::snprintf(line, sizeof(line), "%8lld %12.1f %10s  ", static_cast<long long>(entry.step),
                  static_cast<double>(entry.bytes) / (1 << 20),
                  age_text(entry.created_unix).c_str());
    std::cout << line
              << (entry.whole ? (verify ? "whole (every byte checked)" : "whole (sizes checked)")
                              : "NOT WHOLE: " + printable(shortened(entry.problem, kLongestNote)))
              << (entry.foreign ? ", written by transformers" : "") << "\n";
    for (const std::string& note : entry.notes) {
      std::cout << "         note: " << printable(shortened(note, kLongestNote)) << "\n";
    }
  }
  return any_whole ? kExitFinished : kExitNoValidCheckpoint;
}

}  // namespace finetune::cli
