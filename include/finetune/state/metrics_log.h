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

// transformers' TrainerControl at the moment of saving.
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
// hyperparameter search are always written as "none"; those in a file are not kept.
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
  // and returns it. Requires: `values` is an object with neither key.
  const nlohmann::ordered_json& log(nlohmann::ordered_json values);

  // Keys sorted, as transformers writes them; doubles read back to the same bits. JSON has no NaN
  // or infinity: they are written as null (transformers writes words that strict readers refuse).
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  [[nodiscard]] std::string to_text() const;  // the file's content: indent 2, newline at the end

  // Missing keys have their defaults, unknown ones are ignored, every number is checked. Throws
  // Error(kData) that starts with `where` (the file). Reads what transformers 4 and 5 write.
  [[nodiscard]] static TrainerState from_json(const nlohmann::ordered_json& json,
                                              const std::string& where);
  // The same from the file's text, in which Python may have written NaN and Infinity.
  [[nodiscard]] static TrainerState from_text(std::string_view text, const std::string& where);
};

// What transformers' speed_metrics returns: `<split>_runtime` in seconds, and, where given,
// `_samples_per_second`, `_steps_per_second`, `_tokens_per_second`, rounded as it does.
struct SpeedCounts {
  std::optional<int64_t> samples = {};
  std::optional<int64_t> steps = {};
  std::optional<int64_t> tokens = {};
};
[[nodiscard]] nlohmann::ordered_json speed_metrics(std::string_view split, double runtime_seconds,
                                                   const SpeedCounts& counts);

// Trainer.save_metrics: writes `<name>_results.json` ("train", "eval") and merges the same into
// `all_results.json`, each whole or not at all. An all_results.json that cannot be read is
// replaced, with a warning. Throws Error(kIo).
void write_results(FileSystem& files, const std::string& output_dir, std::string_view name,
                   const nlohmann::ordered_json& metrics);

}  // namespace finetune
