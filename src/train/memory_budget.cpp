// SPDX-License-Identifier: MIT
#include "train/memory_budget.h"

#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "train/memory_text.h"
#include "train/memory_workload.h"

namespace finetune {
namespace {

int64_t effective_batch(const TrainingArgs& args, const RunState* saved) {
  if (args.effective_batch_size) return *args.effective_batch_size;
  if (saved != nullptr) return saved->effective_batch_size;
  return args.per_device_train_batch_size * args.gradient_accumulation_steps;
}

std::optional<MemoryDecision> saved_decision(const LoadedConfig& config, const RunState& saved) {
  if (saved.memory.empty()) return std::nullopt;
  MemoryDecision decision = MemoryDecision::from_json(saved.memory, checkpoint::kFinetuneStateFile);
  if (!decision.is_for(config, effective_batch(config.args, &saved))) return std::nullopt;
  return decision;
}

bool is_same_machine(const Environment& then, const Environment& now) {
  return then.device == now.device && then.torch_version == now.torch_version;
}

}  // namespace

std::optional<MemoryDecision> apply_memory_budget(const LoadedConfig& config, const Parts& parts,
                                                  const RunState* saved) {
  const std::optional<int64_t> budget = memory_budget_of(config.args);
  if (!budget) return std::nullopt;
  if (saved != nullptr && is_same_machine(saved->environment, current_environment(parts.device))) {
    if (std::optional<MemoryDecision> decision = saved_decision(config, *saved)) {
      const std::string kept = decision->budget == *budget ? "" : ", kept at " + mebibytes(*budget);
      log::info(decision->line() + kept);
      return decision;
    }
  }
  const MemoryWorkload workload = workload_of(config, parts, effective_batch(config.args, saved));
  MemoryDecision decision = decide_memory(workload, config, *budget);
  log::info(decision.line());
  return decision;
}

LoadedConfig with_saved_choices(const LoadedConfig& config, const RunState& saved) {
  const std::optional<MemoryDecision> decision = saved_decision(config, saved);
  return decision ? decision->apply(config) : config;
}

}  // namespace finetune
