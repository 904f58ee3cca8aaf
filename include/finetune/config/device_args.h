// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// Device, number formats and memory. describe() documents the keys.
struct DeviceArgs {
  std::string accelerator = "auto";
  bool use_cpu = false;
  bool bf16 = false;
  bool fp16 = false;
  bool bf16_full_eval = false;
  bool fp16_full_eval = false;
  std::optional<bool> tf32;
  std::string param_dtype = "float32";
  std::string grad_accum_dtype = "float32";
  std::optional<bool> activation_checkpointing;
  JsonText activation_checkpointing_kwargs;
  std::optional<bool> gradient_checkpointing;
  JsonText gradient_checkpointing_kwargs;
  std::optional<std::string> memory_budget;

  static void describe(FieldList& field);
};

// Multi-process and multi-node training.
struct DistributedArgs {
  std::string num_processes = "1";
  int64_t zero_stage = 0;
  int64_t local_rank = -1;
  std::optional<std::string> ddp_backend;
  int64_t ddp_timeout = 1800;
  std::optional<int64_t> ddp_bucket_cap_mb;
  std::string ddp_comm_hook = "no";

  static void describe(FieldList& field);
};

}  // namespace finetune
