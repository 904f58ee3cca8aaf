// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// How long to train, and the batch sizes. describe() documents the keys.
struct DurationArgs {
  bool do_train = true;
  bool do_eval = false;  // true after loading unless eval_strategy is "no"
  bool do_predict = false;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  std::optional<int64_t> effective_batch_size;
  bool average_tokens_across_devices = true;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;
  bool full_determinism = false;

  static void describe(FieldList& field);
};

// The optimizer and its learning rate.
struct OptimizerArgs {
  std::string optim = "adamw_torch_fused";
  JsonText optim_args;
  bool optimizer_in_backward = false;
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  JsonText lr_scheduler_kwargs;
  double warmup_steps = 0;  // below 1: fraction of all steps
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  double label_smoothing_factor = 0.0;
  std::string divergence_policy = "stop";
  int64_t divergence_max_tries = 3;
  std::optional<double> loss_spike_factor;
  std::optional<double> grad_norm_spike_factor;

  static void describe(FieldList& field);
};

}  // namespace finetune
