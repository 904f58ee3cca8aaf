// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/checkpoint/owner.h"
#include "finetune/checkpoint/reader.h"

// The state of a run for `status` and `report`, from its output folder alone. Reads only, never
// waits for the run, and accepts partially written files and folders of transformers' Trainer.
namespace finetune::cli {

// Seconds to wait for the heartbeat of an owner on another machine, which writes one every 10
// seconds.
inline constexpr double kHeartbeatPatience = 12;

enum class RunActivity {
  kIdle,
  kHere,       // a live process of this machine owns the folder
  kElsewhere,  // a live process of another machine or container owns it: its heartbeat was seen
};

struct RunFolder {
  std::string path;
  RunActivity activity = RunActivity::kIdle;
  std::optional<checkpoint::Owner> owner = {};  // live or dead
  std::vector<checkpoint::CheckpointEntry> checkpoints = {};
  int64_t quarantined = 0;  // checkpoint-N.bad-k
  // Empty objects if the file is missing or unreadable:
  nlohmann::ordered_json state = nlohmann::ordered_json::object();     // finetune_state.json
  nlohmann::ordered_json trainer = nlohmann::ordered_json::object();   // trainer_state.json
  nlohmann::ordered_json progress = nlohmann::ordered_json::object();  // of the live process
  std::vector<nlohmann::ordered_json> events = {};  // sessions.jsonl, newest run only
  int64_t unusable_lines = 0;                       // of sessions.jsonl
  bool is_foreign = false;                          // written by transformers' Trainer
  bool is_finished = false;                         // according to its files

  [[nodiscard]] bool is_running() const { return activity != RunActivity::kIdle; }
  [[nodiscard]] const checkpoint::CheckpointEntry* newest_valid() const;
  // Returns the configuration of the newest session; an empty object if unknown.
  [[nodiscard]] nlohmann::ordered_json config() const;
};

// `patience`: seconds to wait for the heartbeat of an owner on another machine. `verify`: compare
// every byte of the checkpoints. Returns nullopt if the folder contains no run. Throws
// Error(kUsage) if there is no such folder, Error(kIo).
[[nodiscard]] std::optional<RunFolder> read_run_folder(const std::string& path, double patience,
                                                       bool verify = false);

// Returns a member, or null if it is missing.
[[nodiscard]] nlohmann::ordered_json member(const nlohmann::ordered_json& object,
                                            const std::string& name);
[[nodiscard]] std::optional<double> number_in(const nlohmann::ordered_json& object,
                                              const std::string& name);

}  // namespace finetune::cli
