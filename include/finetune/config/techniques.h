// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "finetune/base/activation_checkpointing.h"
#include "finetune/config/optimizer_names.h"
#include "finetune/config/training_args.h"

namespace finetune {

// Parsed values of the keys for memory and the optimizer. Loading has checked them, so these
// functions throw only for hand-made TrainingArgs: Error(kConfig) naming the key.

// activation_checkpointing and its kwargs (or gradient_checkpointing, their old name).
[[nodiscard]] ActivationCheckpointing checkpointing_of(const TrainingArgs& args);

// optim and optim_args.
struct OptimizerChoice {
  std::string kind = "adamw";         // one of optimizer_names()
  OptimizerArguments arguments = {};  // all arguments of the kind

  friend bool operator==(const OptimizerChoice&, const OptimizerChoice&) = default;
};
[[nodiscard]] OptimizerChoice optimizer_of(const TrainingArgs& args);

// load_in_4bit. kAuto: memory_budget decides.
enum class FourBits { kNo, kYes, kAuto };
[[nodiscard]] FourBits four_bits_of(const TrainingArgs& args);

// memory_budget in bytes.
[[nodiscard]] std::optional<int64_t> memory_budget_of(const TrainingArgs& args);

// Converts "1000MiB", "1.5 GiB", "900MB" (10^6), "1048576" (bytes) to bytes; nullopt if the text is
// not a size.
[[nodiscard]] std::optional<int64_t> parse_memory_size(std::string_view text);

// Returns what is wrong with the size of a memory, to follow the name of its key or option; empty
// if it is a size from 16 MiB (libtorch alone needs more) to 1 PiB.
[[nodiscard]] std::string problem_of_memory_size(std::string_view text);

}  // namespace finetune
