// SPDX-License-Identifier: MIT
#pragma once

#include "train/setup/assemble.h"

// From the keys of an adapter to nn::LoraConfig and the type of the frozen base.
namespace finetune {

// Puts the adapter that the keys ask for on the starting model. Throws Error(kConfig).
void add_adapter(const LoadedConfig& config, const AssemblyRequest& request, StartingPoint& start);
// Compares the base of a new run with the one that adapter_name_or_path was trained on, by content,
// where a run recorded that. Throws Error(kConfig) if they differ, Error(kIo) and Interrupted.
void check_base_of_continued(const KeyLocations& keys, const DataParts& parts,
                             const TokenCacheOptions& cache);

// Makes the optimizer of the trained parameters: in two groups, with and without weight decay, or
// with loraplus_lr_ratio in the four groups of PEFT's create_loraplus_optimizer (Hayou et al. 2024,
// "LoRA+").
[[nodiscard]] std::unique_ptr<Optimizer> make_run_optimizer(const TrainingArgs& args, Model& model,
                                                            const OptimizerOptions& options);

// Checks that the model's adapter, if it has one, fits the model, and chooses the type of its base.
// Throws Error(kConfig).
void settle_base(const LoadedConfig& config, DataParts& parts);
// The last part of it, again, with the keys that memory_budget has decided about.
void choose_base_format(const LoadedConfig& config, DataParts& parts);

}  // namespace finetune
