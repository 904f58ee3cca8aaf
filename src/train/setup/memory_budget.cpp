// SPDX-License-Identifier: MIT
#include "train/setup/memory_budget.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/memory_status.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/batch_split.h"
#include "finetune/plan/memory_text.h"
#include "finetune/tensor/device.h"
#include "train/setup/memory_workload.h"
#include "train/setup/resume.h"

namespace finetune {
namespace {

// Returns the samples of an update in one process.
int64_t effective_batch(const TrainingArgs& args, const RunState* saved, int64_t processes) {
  const bool keeps_saved = saved != nullptr && !args.effective_batch_size;
  return (keeps_saved ? saved->effective_batch_size : asked_effective_batch(args, processes)) /
         processes;
}

std::optional<MemoryDecision> saved_decision(const LoadedConfig& config, const RunState& saved,
                                             int64_t processes) {
  if (saved.memory.empty()) return std::nullopt;
  MemoryDecision decision = MemoryDecision::from_json(saved.memory, checkpoint::kFinetuneStateFile);
  const int64_t batch = effective_batch(config.args, &saved, processes);
  if (!decision.is_for(memory_options(config), batch)) return std::nullopt;
  return decision;
}

// Measurements differ slightly between processes, so the first process decides for all.
MemoryDecision decide_as_one(const MemoryWorkload& workload, const MemoryOptions& options,
                             World* world) {
  const auto decide = [&] { return decide_memory(workload, options, options.budget.value()); };
  if (world == nullptr || world->size() == 1) return decide();
  const std::string decided = world->broadcast(world->is_first() ? decide().to_json().dump() : "");
  return MemoryDecision::from_json(parse_json(decided, "memory_budget"), "memory_budget");
}

}  // namespace

std::optional<MemoryDecision> kept_decision(const LoadedConfig& config, const RunState& saved,
                                            const Environment& now, std::string& why) {
  std::optional<MemoryDecision> decision = saved_decision(config, saved, now.processes);
  if (!decision) return std::nullopt;
  why = machine_difference(saved.environment, now);
  if (!why.empty()) return std::nullopt;
  return decision;
}

std::optional<MemoryDecision> apply_memory_budget(const LoadedConfig& config,
                                                  const DataParts& parts, const RunState* saved) {
  const MemoryOptions options = memory_options(config);
  if (!options.budget) return std::nullopt;
  const int64_t processes = processes_of(config.args, parts);
  Environment now = current_environment(parts.device);
  now.processes = processes;
  if (saved != nullptr) {
    std::string why;
    if (const std::optional<MemoryDecision> decision = kept_decision(config, *saved, now, why)) {
      const std::string kept =
          decision->budget == *options.budget ? "" : ", kept at " + mebibytes(*options.budget);
      log::info(decision->line() + kept);
      return decision;
    }
    if (!why.empty()) log::info("memory is planned again for another machine: " + why);
  }
  const MemoryWorkload workload =
      workload_of(config.args, parts, effective_batch(config.args, saved, processes));
  const MemoryDecision decision = decide_as_one(workload, options, parts.world.get());
  log::info(decision.line());
  const std::optional<MemoryDecision> before =
      saved != nullptr ? saved_decision(config, *saved, processes) : std::nullopt;
  MemoryChoices same_base = decision.choices;  // which is four bits by its key now
  if (before) same_base.four_bits = before->choices.four_bits;
  if (before && before->choices != same_base) {
    log::warning("not bit-exact from here: micro-batch or storage formats differ from before");
  }
  return decision;
}

int64_t batches_at_once(const TrainingArgs& args, const MemoryWorkload& workload,
                        const MemoryChoices& choices) {
  if (workload.is_device || !workload.sums_shards || workload.zero_stage > 1) return 1;
  // The processes of a machine share its memory.
  const int64_t free = attainable_memory() / workload.processes;
  const int64_t most = free > 0 ? free : std::numeric_limits<int64_t>::max();
  return largest_batches_at_once(workload, choices,
                                 std::min(most, memory_budget_of(args).value_or(most)));
}

int64_t batches_at_once(const TrainingArgs& args, const DataParts& parts, const RunState* saved,
                        const std::optional<MemoryDecision>& decision) {
  if (!args.full_determinism || !parts.device.is_cpu()) return 0;
  if (num_threads() == 1) return 1;
  const int64_t batch = effective_batch(args, saved, processes_of(args, parts));
  return batches_at_once(args, workload_of(args, parts, std::max<int64_t>(1, batch)),
                         decision ? decision->choices : choices_of(args));
}

LoadedConfig with_saved_choices(const LoadedConfig& config, const RunState& saved) {
  const std::optional<MemoryDecision> decision =
      saved_decision(config, saved, saved.environment.processes);
  LoadedConfig recorded = config;
  if (decision) decision->record_in(recorded.args);
  return recorded;
}

}  // namespace finetune
