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

// What libraries and machine a run's bits depend on.
struct Environment {
  std::string finetune_version, torch_version, device, cpu_capability;
  int64_t threads = 0;  // of each process
  int64_t processes = 1;
  int64_t processors = 0;      // of the machine; 0: not known
  int64_t machine_memory = 0;  // of the host, in bytes; 0: not known
};

// What the run was made from; may not change between its sessions.
struct RunIdentity {
  std::string data;        // fingerprint of the training samples
  std::string validation;  // of the validation samples; empty without
  std::string tokenizer;   // hash of its files
  std::string model;       // config.json of the model
};

// Samples at a time where memory did not suffice for as many as the keys ask for; 0: it did. Kept
// in the checkpoint, so that the next session does not run out of memory again.
struct MemoryCut {
  int64_t asked_train = 0, train = 0;
  int64_t asked_eval = 0, eval = 0;
  friend bool operator==(const MemoryCut&, const MemoryCut&) = default;
};

// The part of `saved` that applies to a run of these sizes: a micro-batch size for another batch
// size than the keys have is dropped, and so is one that does not divide the batch of a device.
[[nodiscard]] MemoryCut usable_cut(const MemoryCut& saved, int64_t train, int64_t eval,
                                   int64_t samples_per_update);

// Everything except weights, optimizer and log that a run needs to resume exactly: the content of
// finetune_state.json. All of it changes at update boundaries only.
struct RunState {
  static constexpr int64_t kFormatVersion = 1;

  std::string run_id;
  int64_t step = 0;     // loop iterations, transformers' global_step
  int64_t updates = 0;  // optimizer steps applied
  Position position;
  int64_t effective_batch_size = 0;
  int64_t length_group = 0;   // samples that group_by_length sorts together; 0: none so far
  int64_t shard_rows = 0;     // samples of a logical shard, with full_determinism
  int64_t shard_threads = 0;  // that compute one; 0: all that environment has
  int64_t max_steps = 0;      // of the run as it was planned

  double window_loss = 0.0;       // sum of the losses since the last log
  int64_t window_first_step = 0;  // step of the last log
  double total_loss = 0.0;        // of everything logged before
  double total_flos = 0.0;
  int64_t tokens_seen = 0;
  double last_grad_norm = 0.0;
  double last_learning_rate = 0.0;
  int64_t nonfinite_updates = 0;  // skipped because of a non-finite loss or gradient
  DivergenceState divergence;
  MemoryCut cut;
  int64_t early_stopping_counter = 0;
  bool stop_early = false;               // early stopping has decided
  bool evaluation_pending = false;       // the evaluation due at this step was cut by a signal
  int64_t lost_best_step = 0;            // newest best step whose save failed; 0: none
  std::vector<int64_t> automatic_steps;  // of saves that no key asked for at that step, rising
  std::string origin;                    // resume_from_checkpoint where that named a path
  bool finished = false;
  bool has_manifest = false;  // finished, and manifest.json holds the checksums of the model
  double seconds = 0.0;       // training time of all sessions
  int64_t sessions = 0;

  nlohmann::ordered_json schedule = nlohmann::ordered_json::object();
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  // Where a stream's samples lie (SampleStream::state); empty without.
  nlohmann::ordered_json stream = nlohmann::ordered_json::object();
  // What memory_budget picked (MemoryDecision); empty without.
  nlohmann::ordered_json memory = nlohmann::ordered_json::object();
  // What earlier sessions measured: "save_seconds" of the slowest save, and with hardware "cost".
  nlohmann::ordered_json session = nlohmann::ordered_json::object();
  RunIdentity identity;
  // The files that the identity was computed from (run_inputs.h); empty in states of earlier
  // versions.
  nlohmann::ordered_json inputs = nlohmann::ordered_json::object();
  Environment environment;

  [[nodiscard]] std::string to_text() const;
  // `where` starts every message; every number is checked. Throws Error(kData).
  [[nodiscard]] static RunState parse(const std::string& text, const std::string& where);
};

}  // namespace finetune
