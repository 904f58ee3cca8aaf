// SPDX-License-Identifier: MIT
#include "train/session/training_run.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/state/finite_state.h"
#include "finetune/task/loader_options.h"
#include "finetune/task/tasks.h"
#include "train/setup/connect_devices.h"
#include "train/setup/memory_workload.h"

namespace finetune {
namespace {

// As in transformers, a value below 1 is a ratio of all steps, rounded up.
int64_t steps_or_ratio(double value, int64_t max_steps) {
  if (value >= 1.0) return static_cast<int64_t>(std::min(value, 1e15));
  return static_cast<int64_t>(std::ceil(static_cast<double>(max_steps) * value));
}

Plan make_plan(const TrainingArgs& args, int64_t updates_per_epoch, bool is_streamed) {
  Plan plan;
  const auto per_epoch = static_cast<double>(updates_per_epoch);
  plan.max_steps = args.max_steps > 0
                       ? args.max_steps
                       : static_cast<int64_t>(std::ceil(args.num_train_epochs * per_epoch));
  plan.num_train_epochs = args.max_steps > 0 && !is_streamed
                              ? (args.max_steps + updates_per_epoch - 1) / updates_per_epoch
                              : static_cast<int64_t>(std::ceil(args.num_train_epochs));
  plan.warmup_steps = steps_or_ratio(args.warmup_steps, plan.max_steps);
  plan.logging_steps = steps_or_ratio(args.logging_steps, plan.max_steps);
  plan.save_steps = steps_or_ratio(args.save_steps, plan.max_steps);
  plan.eval_steps = args.eval_steps ? steps_or_ratio(*args.eval_steps, plan.max_steps) : 0;
  return plan;
}

// Returns the bytes of each trained parameter with its optimizer state; 0 for the others.
std::vector<int64_t> bytes_of_parameters(const Optimizer& optimizer) {
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  std::vector<int64_t> bytes(parameters.size());
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    Optimizer::Slot fresh = slot;
    optimizer.create_state(fresh);
    bytes[slot.parameter] = static_cast<int64_t>(parameters[slot.parameter].weight.nbytes());
    for (const auto& [name, values] : fresh.state) {
      bytes[slot.parameter] += static_cast<int64_t>(values.nbytes());
    }
  }
  return bytes;
}

// Which rank has the states of parameters, before they are created: of divided parameters all have
// a part.
DividedStates divide_states(const TrainingArgs& args, World& world, Optimizer& optimizer,
                            int64_t bucket_bytes) {
  if (args.zero_stage == 0 || world.size() == 1) return {};
  if (has_divided(optimizer.parameters())) {
    return {.weights = nullptr, .gather = std::make_unique<StateGather>(world, optimizer)};
  }
  const std::vector<int64_t> owners = balanced_owners(bytes_of_parameters(optimizer), world.size());
  for (Optimizer::Slot& slot : optimizer.slots()) {
    slot.is_elsewhere = owners[slot.parameter] != world.rank();
  }
  std::vector<Tensor> weights;
  std::vector<int64_t> owners_of_weights;
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  for (const size_t i : optimizer.parameters().trained()) {
    for (const Tensor& part : {parameters[i].weight, parameters[i].correction}) {
      if (!part.defined()) continue;
      weights.push_back(part);
      owners_of_weights.push_back(owners[i]);
    }
  }
  return {.weights = std::make_unique<OwnedTensors>(world, std::move(weights),
                                                    std::move(owners_of_weights), bucket_bytes),
          .gather = std::make_unique<StateGather>(world, optimizer, owners)};
}

}  // namespace

TrainingRun::TrainingRun(const LoadedConfig& config_, const RunOptions& options_,
                         RunStorage& storage_, Parts& parts_, ProgressDisplay& progress_)
    : config(config_),
      args(config_.args),
      options(options_),
      storage(storage_),
      parts(parts_),
      progress(progress_),
      files(storage_.folder().files()),
      stream(std::dynamic_pointer_cast<const SampleStream>(parts_.train_data)),
      split({.rows = args.per_device_train_batch_size, .ranks = parts_.world->size()}) {
  if (args.fp16) scaler.emplace();
  check_processes(config, world().size());
  connect_devices(world(), parts.device, config);
  divided = divide_states(args, world(), *parts.optimizer, bucket_bytes());
}

// A resumed run keeps the effective batch of its first session.
void TrainingRun::prepare(const BatchSplit& asked) {
  state.effective_batch_size = asked.effective_batch();
  split = BatchSplit::of(asked.effective_batch(), split.rows, asked.ranks).value_or(asked);
  if (args.optimizer_in_backward && split.accumulation > 1) {
    throw Error(ErrorKind::kConfig,
                "optimizer_in_backward: true excludes accumulation, and this run's batch of " +
                    std::to_string(asked.effective_batch()) + " samples is split into " +
                    std::to_string(split.accumulation) +
                    ": a gradient that is freed at once cannot be summed; set "
                    "per_device_train_batch_size to " +
                    std::to_string(asked.rank_batch()) + ", or leave optimizer_in_backward out");
  }
  make_loader();
  plan = make_plan(args, loader->updates_per_epoch(), stream != nullptr);
  schedule = make_schedule({.type = args.lr_scheduler_type,
                            .learning_rate = args.learning_rate,
                            .warmup_steps = plan.warmup_steps,
                            .max_steps = plan.max_steps,
                            .kwargs_json = args.lr_scheduler_kwargs.text,
                            .greater_is_better = args.greater_is_better.value_or(false)});
}

void TrainingRun::make_loader() {
  // Stored with the run: another value would change the order of the rest of the epoch.
  if (state.length_group == 0) {
    state.length_group =
        default_length_group(args, parts.train_data->size(), state.effective_batch_size);
  }
  LoaderOptions loading = loader_options(args, args, args, split.micro_batches(),
                                         state.length_group, parts.setup->packed_length());
  loading.batch_size = split.rows;
  loading.part = world().rank();
  loading.parts = world().size();
  loader =
      std::make_unique<Loader>(parts.train_data, parts.collator, loading, show_steps(progress));
}

Environment TrainingRun::environment() const {
  Environment now = current_environment(parts.device);
  now.processes = world().size();
  return now;
}

DivergenceOptions TrainingRun::divergence_options() const {
  return {.policy = args.divergence_policy == "skip"       ? DivergencePolicy::kSkip
                    : args.divergence_policy == "rollback" ? DivergencePolicy::kRollBack
                                                           : DivergencePolicy::kStop,
          .max_tries = args.divergence_max_tries,
          .loss_spike_factor = args.loss_spike_factor,
          .grad_norm_spike_factor = args.grad_norm_spike_factor};
}

std::string TrainingRun::checkpoint_path(int64_t step) const {
  return join_path(args.output_dir, checkpoint::checkpoint_name(step));
}

// The epoch, with the fraction of its micro-batches that are done.
double TrainingRun::epoch() const {
  const int64_t rows = split.rows_of_all();
  const auto batches = [&](int64_t samples) {
    return static_cast<double>((samples + rows - 1) / rows);
  };
  // The length of a stream's first epoch is unknown; as in transformers, the number of all updates
  // takes its place.
  const bool is_known = !stream || state.position.epoch > 0;
  const int64_t samples =
      is_known ? loader->samples_per_epoch() : plan.max_steps * state.effective_batch_size;
  return static_cast<double>(state.position.epoch) +
         batches(state.position.sample) / batches(samples);
}

bool TrainingRun::is_epoch_end() const {
  return state.step > 0 && (state.position.sample == 0 || is_last_step());
}

bool TrainingRun::log_is_due() const {
  if (state.step <= state.window_first_step) return false;
  if (state.step == 1 && args.logging_first_step) return true;
  if (args.logging_strategy == "epoch") return is_epoch_end();
  return args.logging_strategy == "steps" && state.step % plan.logging_steps == 0;
}

bool TrainingRun::evaluation_is_due() const {
  if (!parts.validation_data) return false;
  if (args.eval_strategy == "epoch") return is_epoch_end() && epoch() >= args.eval_delay;
  if (args.eval_strategy != "steps" || static_cast<double>(state.step) < args.eval_delay) {
    return false;
  }
  return state.step % plan.eval_steps == 0 || is_last_step();
}

bool TrainingRun::save_is_due() const {
  if (args.save_strategy == "epoch") return is_epoch_end();
  if (args.save_strategy == "best") return has_new_best;
  if (args.save_strategy != "steps") return false;
  return state.step % plan.save_steps == 0 || is_last_step();
}

std::optional<int64_t> TrainingRun::next_save() const {
  const bool is_by_steps = args.save_strategy == "steps";
  if (!is_by_steps && (args.save_strategy != "epoch" || stream)) return std::nullopt;
  const int64_t every = is_by_steps ? plan.save_steps : loader->updates_per_epoch();
  if (every <= 0 || is_last_step()) return std::nullopt;
  return std::min(plan.max_steps, (state.step / every + 1) * every);
}

LeftOut TrainingRun::samples_of_update(const Position& position) const {
  // If the next position is in another epoch, this update ends the epoch.
  const Position next = loader->after(position);
  const int64_t end = next.epoch == position.epoch ? next.sample : loader->samples_per_epoch();
  return {.position = position, .samples = end - position.sample};
}

bool TrainingRun::sums_shards() const {
  return args.full_determinism && split.micro_batches() > 1 &&
         store().gradient_format() == GradientFormat::kFloat32;
}

int64_t TrainingRun::bucket_bytes() const { return finetune::bucket_bytes(args); }

std::string TrainingRun::nonfinite_state() const {
  std::string found = nonfinite_part(*parts.optimizer);
  if (!divided.gather) return found;
  for (const std::string& of_rank : world().gather(found)) {
    if (!of_rank.empty()) return of_rank;
  }
  return "";
}

LoadingClass loading_class(const TrainingRun& run) {
  const Pipeline& pipeline = task_of(run.args.task).pipeline;
  const bool adapts_whole = run.args.use_peft && !run.parts.model->config().name_in_whole.empty();
  if (adapts_whole) return {.ending = "ForImageTextToText"};
  return {.ending = std::string(pipeline.class_suffix),
          .has_peft_class = run.args.use_peft && pipeline.has_peft_class};
}

}  // namespace finetune
