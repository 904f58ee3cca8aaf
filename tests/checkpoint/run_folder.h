// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/writer.h"
#include "support/fault_injecting_file_system.h"

namespace finetune::checkpoint {

// The files that a run of a tiny model saves after `step` steps.
inline std::vector<CheckpointFile> tiny_contents(int64_t step) {
  const std::string tag = " of step " + std::to_string(step);
  return {text_file("model.safetensors", std::string(300, 'w') + "weights" + tag),
          text_file("optimizer.pt", std::string(500, 'm') + "moments" + tag),
          text_file("config.json", "{}"),
          text_file("finetune_state.json", "{\"position\": " + std::to_string(step) + "}")};
}

inline std::string save(FileSystem& files, const std::string& output_dir, int64_t step,
                        const std::string& run_id = "run") {
  return write_checkpoint(files, output_dir, {.step = step, .run_id = run_id}, tiny_contents(step));
}

// An output folder and its graveyard. `files` is the local file system without syncs.
struct RunFolder {
  RunFolder() {
    std::filesystem::create_directory(output_dir);
    std::filesystem::create_directory(graveyard);
  }

  [[nodiscard]] std::string path_of(int64_t step, const std::string& name = "") const {
    const std::string folder = output_dir + "/checkpoint-" + std::to_string(step);
    return name.empty() ? folder : folder + "/" + name;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    return FileSystem::local().list(output_dir);
  }
  // Returns the step of the newest valid checkpoint, -1 if there never was one; reports go to
  // `lines`.
  int64_t newest() {
    const auto found = find_newest_good(files, output_dir,
                                        [&](const std::string& line) { lines.push_back(line); });
    return found ? found->step : -1;
  }

  finetune::testing::TemporaryFolder root;
  std::string output_dir = root / "out";
  std::string graveyard = root / "graveyard";
  finetune::testing::FaultInjectingFileSystem files{FileSystem::local(), graveyard};
  std::vector<std::string> lines;
};

}  // namespace finetune::checkpoint
