// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/loader.h"
#include "finetune/state/divergence.h"

namespace finetune {

// Libraries and hardware on which a run's exact bits depend.
struct Environment {
  std::string finetune_version, torch_version, device, cpu_capability;
  int64_t threads = 0;  // of each process
  int64_t processes = 1;
  int64_t processors = 0;      // of the machine; 0: unknown
  int64_t machine_memory = 0;  // of the host, in bytes; 0: unknown
  int64_t arithmetic = 1;      // kArithmeticVersion; 1 in states that do not have it
};

// Fingerprints of a run's inputs, which must not change between its sessions.
struct RunIdentity {
  std::string data;                // fingerprint of the training samples
  std::string validation;          // of the validation samples; empty if there are none
  std::string tokenizer;           // hash of its files
  std::string model;               // config.json of the model
  std::string chat_template = {};  // hash of the chat template; empty: none is used
  std::string guides = {};         // of the weights of TaskSetup::guides(); empty: none are used
};

// Reduced micro-batch sizes after an OOM, and the sizes that the keys asked for; 0: not reduced.
// Stored in the checkpoint, so that the next session does not run out of memory again.
struct MemoryCut {
  int64_t asked_train = 0, train = 0;
  int64_t asked_eval = 0, eval = 0;
  friend bool operator==(const MemoryCut&, const MemoryCut&) = default;
};

// Returns the part of `saved` that applies to a run of these sizes. Drops a size that was reduced
// from another batch size than the keys have now, or that does not divide a device's batch.
[[nodiscard]] MemoryCut usable_cut(const MemoryCut& saved, int64_t train, int64_t eval,
                                   int64_t samples_per_update);

// The content of finetune_state.json: everything except weights, optimizer and log that an exact
// resume needs. Changes only at update boundaries.
struct RunState {
  static constexpr int64_t kFormatVersion = 1;

  std::string run_id;
  int64_t step = 0;     // completed steps, transformers' global_step
  int64_t updates = 0;  // optimizer steps applied
  Position position;
  int64_t effective_batch_size = 0;
  int64_t length_group = 0;   // samples that group_by_length sorts together; 0: not decided yet
  int64_t shard_rows = 0;     // samples of a logical shard, with full_determinism
  int64_t shard_threads = 0;  // threads that compute one shard; 0: all of environment's
  int64_t max_steps = 0;      // of the planned run

  double window_loss = 0.0;                   // sum of the losses since the last log
  std::vector<double> window_measures = {};   // the same of Task::measures()
  std::vector<int64_t> window_measured = {};  // updates that had targets of each
  int64_t window_first_step = 0;              // step of the last log
  double total_loss = 0.0;                    // of all steps before window_first_step
  double total_flos = 0.0;
  int64_t tokens_seen = 0;
  double last_grad_norm = 0.0;
  double last_learning_rate = 0.0;
  int64_t nonfinite_updates = 0;  // skipped because of a non-finite loss or gradient
  DivergenceState divergence;
  MemoryCut cut;
  int64_t early_stopping_counter = 0;
  bool stop_early = false;          // early stopping has ended the run
  bool evaluation_pending = false;  // the evaluation due at this step was interrupted by a signal
  int64_t lost_best_step = 0;       // newest best step whose save failed; 0: none
  std::vector<int64_t> automatic_steps;  // steps of saves that no key scheduled, ascending
  std::string origin;                    // resume_from_checkpoint if it was a path
  std::string chat_date;  // "2026-07-05": the date of strftime_now() in chat templates
  bool finished = false;
  bool has_manifest = false;  // the run is finished and manifest.json has the model's checksums
  double seconds = 0.0;       // training time of all sessions
  int64_t sessions = 0;

  nlohmann::ordered_json schedule = nlohmann::ordered_json::object();
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  // Offsets of a stream's samples (SampleStream::state); empty without a stream.
  nlohmann::ordered_json stream = nlohmann::ordered_json::object();
  // The choices of memory_budget (MemoryDecision); empty without it.
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();
  // Measurements of earlier sessions: "save_seconds" of the slowest save, with the key hardware
  // "cost", and with a mirror in a bucket its use, "bucket".
  nlohmann::ordered_json session = nlohmann::ordered_json::object();
  RunIdentity identity;
  // The files from which the identity was computed (run_inputs.h); empty in states of earlier
  // versions.
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();
  Environment environment;

  [[nodiscard]] std::string to_text() const;
  // Checks every number; `where` is the prefix of every message. Throws Error(kData).
  [[nodiscard]] static RunState parse(const std::string& text, const std::string& where);
};

}  // namespace finetune
