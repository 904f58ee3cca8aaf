// SPDX-License-Identifier: MIT
#include <map>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/interface/dynamic_map.h"

namespace finetune::kernels::cuda {
namespace {

constexpr int64_t kValuesOfUpdateBlock = 2048;  // kListedValues of device/lists.h

// A variant of device/adamw.cu is 3 * state + weight.
enum StateKind : int { kOfTorch, kOfBitsAndBytes, kDynamicCodes, kCompandedCodes };
enum WeightKind : int { kWideWeight, kBrainWeight, kSplitWeight };

WeightKind weight_kind(const ParameterTensors& parameter) {
  if (parameter.correction.defined()) return kSplitWeight;
  return parameter.weight.scalar_type() == at::kFloat ? kWideWeight : kBrainWeight;
}

// Fills a list entry with the addresses of a parameter's state.
struct StateFields {
  Launch& launch;
  ListedUpdate& entry;

  StateKind operator()(const MomentState& state) const {
    set(state.exp_avg, state.exp_avg_sq, {}, {});
    return kOfTorch;
  }
  StateKind operator()(const WideState& state) const {
    set(state.state1, state.state2, {}, {});
    return kOfBitsAndBytes;
  }
  StateKind operator()(const DynamicState& state) const {
    set(state.state1, state.state2, state.absmax1, state.absmax2);
    return kDynamicCodes;
  }
  StateKind operator()(const CompandedState& state) const {
    set(state.exp_avg, state.exp_avg_sq, state.exp_avg_scale, state.exp_avg_sq_scale);
    return kCompandedCodes;
  }

 private:
  void set(const Tensor& state1, const Tensor& state2, const Tensor& scales1,
           const Tensor& scales2) const {
    entry.state1 = launch.changes(state1);
    entry.state2 = launch.changes(state2);
    entry.scales1 = launch.changes<float>(scales1);
    entry.scales2 = launch.changes<float>(scales2);
  }
};

StateKind kind_of(const AdamWState& state) { return static_cast<StateKind>(state.index()); }
static_assert(
    std::is_same_v<std::variant_alternative_t<kOfTorch, AdamWState>, MomentState> &&
    std::is_same_v<std::variant_alternative_t<kOfBitsAndBytes, AdamWState>, WideState> &&
    std::is_same_v<std::variant_alternative_t<kDynamicCodes, AdamWState>, DynamicState> &&
    std::is_same_v<std::variant_alternative_t<kCompandedCodes, AdamWState>, CompandedState>);

// Returns the code tables on the device, copied once. Never destroyed, because the device may be
// gone at exit.
Tensor dynamic_tables(const Tensor& like) {
  static auto& tables = *new std::map<std::string, Tensor>();
  Tensor& table = tables[like.device().str()];
  if (!table.defined()) {
    std::vector<DynamicTables> host(1);
    const DynamicMap* const maps[2] = {&signed_map(), &unsigned_map()};
    for (int i = 0; i < 2; ++i) {
      static_assert(std::size(DynamicTables().buckets[0]) == DynamicMap::kBuckets);
      std::ranges::copy(maps[i]->values, host[0].values[i]);
      std::ranges::copy(maps[i]->buckets, host[0].buckets[i]);
    }
    table = on_device(host, like);
  }
  return table;
}

void launch_jobs(const std::vector<const AdamWJob*>& jobs) {
  const ParameterTensors& one = *jobs.front()->parameter;
  const StateKind state = kind_of(jobs.front()->state);
  Launch launch(one.weight);
  std::vector<ListedUpdate> entries;
  int64_t blocks = 0;
  for (const AdamWJob* const job : jobs) {
    const ParameterTensors& parameter = *job->parameter;
    ListedUpdate entry = {.weight = launch.changes(parameter.weight),
                          .correction = launch.changes<signed char>(parameter.correction),
                          .gradient = launch.reads(parameter.gradient),
                          .count = parameter.weight.numel(),
                          .first_value = parameter.first_value,
                          .first_block = blocks,
                          .rounding_key = job->rounding_key,
                          .factor = static_cast<float>(job->factor),
                          .theirs = job->theirs,
                          .ours = job->ours};
    (void)std::visit(StateFields{launch, entry}, job->state);
    if (entry.count == 0) continue;
    blocks += (entry.count + kValuesOfUpdateBlock - 1) / kValuesOfUpdateBlock;
    entries.push_back(entry);
  }
  const Tensor table = on_device(entries, one.weight);
  const Tensor codes = state == kDynamicCodes ? dynamic_tables(one.weight) : Tensor();
  const AdamWArguments arguments = {.updates = launch.reads<ListedUpdate>(table),
                                    .tables = launch.reads<DynamicTables>(codes),
                                    .count = static_cast<int>(entries.size())};
  launch.run<kernel::adamw>(value_type_of(one.gradient), 3 * state + weight_kind(one),
                            {.x = blocks}, arguments);
}

AdamWJob job_of(const ParameterTensors& parameter, AdamWState state, const AdamWUpdate& update) {
  return {.parameter = &parameter,
          .state = std::move(state),
          .factor = update.factor,
          .rounding_key = update.rounding_key};
}

}  // namespace

bool update_together(const std::vector<AdamWJob>& jobs) {
  std::map<std::tuple<at::ScalarType, StateKind, WeightKind>, std::vector<const AdamWJob*>> groups;
  for (const AdamWJob& job : jobs) {
    const ParameterTensors& parameter = *job.parameter;
    FT_CHECK(parameter.weight.is_contiguous() && parameter.gradient.is_contiguous(),
             "parameters and gradients are contiguous");
    groups[{parameter.gradient.scalar_type(), kind_of(job.state), weight_kind(parameter)}]
        .push_back(&job);
  }
  for (const auto& [formats, some] : groups) launch_jobs(some);
  return true;
}

void update_dynamic(const ParameterTensors& parameter, const DynamicState& state,
                    const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  AdamWJob job = job_of(parameter, state, update);
  job.theirs = numbers;
  (void)update_together({job});
}

void update_wide(const ParameterTensors& parameter, const WideState& state,
                 const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  AdamWJob job = job_of(parameter, state, update);
  job.theirs = numbers;
  (void)update_together({job});
}

void update_companded(const ParameterTensors& parameter, const CompandedState& state,
                      const AdamWUpdate& update, const AdamWNumbers& numbers) {
  AdamWJob job = job_of(parameter, state, update);
  job.ours = numbers;
  (void)update_together({job});
}

}  // namespace finetune::kernels::cuda
