// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "finetune/config/optimizer_names.h"
#include "finetune/config/training_args.h"

namespace finetune {

// What the keys of memory and of the optimizer say, parsed. Loading has checked them all, so that
// these throw for hand-made TrainingArgs alone: Error(kConfig) that names the key.

// activation_checkpointing and its kwargs (or gradient_checkpointing, their old name).
struct ActivationCheckpointing {
  bool enabled = false;
  // Of every_n_layers consecutive layers the first one's input is kept; all of them are recomputed.
  int64_t every_n_layers = 1;
  bool offload = false;    // kept inputs are in host memory
  bool selective = false;  // matrix products are kept, all else is computed again

  friend bool operator==(const ActivationCheckpointing&, const ActivationCheckpointing&) = default;
};
[[nodiscard]] ActivationCheckpointing checkpointing_of(const TrainingArgs& args);

// optim and optim_args.
struct OptimizerChoice {
  std::string kind = "adamw";         // one of optimizer_names()
  OptimizerArguments arguments = {};  // all that the kind has

  friend bool operator==(const OptimizerChoice&, const OptimizerChoice&) = default;
};
[[nodiscard]] OptimizerChoice optimizer_of(const TrainingArgs& args);

// memory_budget in bytes.
[[nodiscard]] std::optional<int64_t> memory_budget_of(const TrainingArgs& args);

// "1000MiB", "1.5 GiB", "900MB" (10^6), "1048576" (bytes) in bytes; nothing where it is no size.
[[nodiscard]] std::optional<int64_t> parse_memory_size(std::string_view text);

}  // namespace finetune
