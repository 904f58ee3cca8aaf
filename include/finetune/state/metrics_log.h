// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune {

// transformers' TrainerControl at the time of saving.
struct TrainerControlState {
  bool should_epoch_stop = false;
  bool should_evaluate = false;
  bool should_log = false;
  bool should_save = false;
  bool should_training_stop = false;
};

// transformers' EarlyStoppingCallback.
struct EarlyStoppingState {
  int64_t patience = 1;
  double threshold = 0;
  int64_t patience_counter = 0;
};

// The content of trainer_state.json: transformers' 20 keys with its defaults. The keys of a
// hyperparameter search are always written as "none"; their values in a file are ignored.
struct TrainerState {
  TrainerState();
  ~TrainerState();
  TrainerState(const TrainerState&);
  TrainerState(TrainerState&&) noexcept;
  TrainerState& operator=(const TrainerState&);
  TrainerState& operator=(TrainerState&&) noexcept;

  double epoch = 0;
  int64_t global_step = 0;
  int64_t max_steps = 0;
  int64_t logging_steps = 500;
  int64_t eval_steps = 500;
  int64_t save_steps = 500;
  std::optional<int64_t> train_batch_size;
  int64_t num_train_epochs = 0;
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::vector<nlohmann::ordered_json> log_history;  // objects, oldest first
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::optional<std::string> best_model_checkpoint;
  bool is_local_process_zero = true;
  bool is_world_process_zero = true;
  TrainerControlState control;
  std::optional<EarlyStoppingState> early_stopping;

  // Appends {values..., "epoch": epoch, "step": global_step} to log_history, as Trainer.log does,
  // and returns the entry. Requires: `values` is an object with neither key.
  const nlohmann::ordered_json& log(nlohmann::ordered_json values);

  // Sorts the keys, as transformers does; doubles are written so that they read back to the same
  // bits. NaN and Inf, which JSON lacks, are written as null (transformers writes NaN and Infinity,
  // which strict readers reject).
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  [[nodiscard]] std::string to_text() const;  // the file's content: indent 2, newline at the end

  // Reads what transformers 4 and 5 write. Missing keys have their defaults, unknown ones are
  // ignored, every number is checked. Throws Error(kData) that starts with `where` (the file).
  [[nodiscard]] static TrainerState from_json(const nlohmann::ordered_json& json,
                                              const std::string& where);
  // The same from the file's text, which may contain Python's NaN and Infinity.
  [[nodiscard]] static TrainerState from_text(std::string_view text, const std::string& where);
};

// Counts for transformers' speed_metrics: `<split>_runtime` in seconds and, for each count that is
// given, `_samples_per_second`, `_steps_per_second`, `_tokens_per_second`, rounded as there.
struct SpeedCounts {
  std::optional<int64_t> samples = {};
  std::optional<int64_t> steps = {};
  std::optional<int64_t> tokens = {};
};
[[nodiscard]] nlohmann::ordered_json speed_metrics(std::string_view split, double runtime_seconds,
                                                   const SpeedCounts& counts);

// Does what Trainer.save_metrics does: writes `<name>_results.json` ("train", "eval") and merges
// the metrics into `all_results.json`, each atomically. An unreadable all_results.json is replaced
// with a warning. Throws Error(kIo).
void write_results(FileSystem& files, const std::string& output_dir, std::string_view name,
                   const nlohmann::ordered_json& metrics);

}  // namespace finetune
