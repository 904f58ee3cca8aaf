// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/owner.h"
#include "finetune/checkpoint/reader.h"

// The state of a run for `status` and `report`, from its output folder alone. Reads only, never
// waits for the run, and accepts partially written files and folders of transformers' Trainer.
namespace finetune {

enum class RunActivity {
  kIdle,
  kHere,       // a live process of this machine owns the folder
  kElsewhere,  // a live process of another machine or container owns it: its heartbeat was seen
};

struct RunFolder {
  std::string path;
  std::shared_ptr<FileSystem> files;  // of the path, which may be in a bucket
  RunActivity activity = RunActivity::kIdle;
  std::optional<checkpoint::Owner> owner = {};  // live or dead
  std::vector<checkpoint::CheckpointEntry> checkpoints = {};
  int64_t quarantined = 0;  // checkpoint-N.bad-k
  // Empty objects where the file is missing or unreadable:
  nlohmann::ordered_json state = nlohmann::ordered_json::object();  // finetune_state.json
  // trainer_state.json, without its log_history, which may be long: see for_each_history_entry().
  nlohmann::ordered_json trainer = nlohmann::ordered_json::object();
  nlohmann::ordered_json progress = nlohmann::ordered_json::object();  // of the live process
  std::string trainer_path = {};                                       // where `trainer` was read
  std::vector<nlohmann::ordered_json> events = {};  // sessions.jsonl, of the newest run in it
  int64_t unusable_lines = 0;                       // of sessions.jsonl
  bool is_foreign = false;                          // written by transformers' Trainer
  bool is_finished = false;                         // according to its files
  // The lowest evaluation loss in the log of `trainer`: what the best model is without
  // metric_for_best_model.
  struct BestLoss {
    double value = 0;
    int64_t step = 0;
  };
  std::optional<BestLoss> best_loss = {};

  [[nodiscard]] bool is_running() const { return activity != RunActivity::kIdle; }
  [[nodiscard]] const checkpoint::CheckpointEntry* newest_valid() const;
  // Returns the configuration of the newest session; an empty object if unknown.
  [[nodiscard]] nlohmann::ordered_json config() const;
};

// `verify`: compare every byte of the checkpoints. The files are read again if the run saved,
// started or ended meanwhile, so that they belong to one moment. Waits some seconds for the
// heartbeat of an owner on another machine. Throws Error(kUsage) if there is no such folder, or no
// run in it, and Error(kIo). `path` may be in a bucket (checkpoint/bucket.h).
[[nodiscard]] RunFolder read_run_folder(const std::string& path, bool verify = false);

// The entries of log_history in the run's trainer_state.json, oldest first, one at a time. What
// follows a damaged byte is left out.
void for_each_history_entry(const RunFolder& run,
                            const std::function<void(const nlohmann::ordered_json&)>& take);

// Lowers `best` to the evaluation loss of a logged line, if it has one.
void note_evaluation(const nlohmann::ordered_json& line, std::optional<RunFolder::BestLoss>& best);

// A member, or null; objects of files may lack anything.
[[nodiscard]] nlohmann::ordered_json member(const nlohmann::ordered_json& object,
                                            const std::string& name);
[[nodiscard]] std::optional<double> number_of(const nlohmann::ordered_json& value);
// A number as an integer, without its fraction; nullopt for one that is negative, NaN or above
// 2^53.
[[nodiscard]] std::optional<int64_t> whole_number_of(const nlohmann::ordered_json& value);
[[nodiscard]] std::optional<double> number_in(const nlohmann::ordered_json& object,
                                              const std::string& name);
[[nodiscard]] std::optional<int64_t> whole_number_in(const nlohmann::ordered_json& object,
                                                     const std::string& name);

}  // namespace finetune
