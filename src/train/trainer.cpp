// SPDX-License-Identifier: MIT
#include "train/trainer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/report/figure_text.h"
#include "finetune/tensor/device.h"
#include "train/best_model.h"
#include "train/clock.h"
#include "train/connect_devices.h"
#include "train/evaluate.h"
#include "train/loader_options.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Below it float16 is not what overflows: torch would halve the scale for ever.
constexpr double kSmallestLossScale = 0x1.0p-10;

// transformers: a value below 1 is a share of all steps, rounded up.
int64_t steps_or_ratio(double value, int64_t max_steps) {
  if (value >= 1.0) return static_cast<int64_t>(std::min(value, 1e15));
  return static_cast<int64_t>(std::ceil(static_cast<double>(max_steps) * value));
}

}  // namespace

Trainer::Trainer(const LoadedConfig& config, const RunOptions& options, RunStorage& storage,
                 Parts& parts, ProgressDisplay& progress)
    : config_(config),
      args_(config.args),
      options_(options),
      storage_(storage),
      parts_(parts),
      progress_(progress),
      files_(storage.files()),
      stream_(std::dynamic_pointer_cast<const SampleStream>(parts.train_data)),
      rows_at_a_time_(config.args.per_device_train_batch_size),
      eval_rows_at_a_time_(config.args.per_device_eval_batch_size),
      poison_(Poison::from_environment()) {
  if (args_.fp16) scaler_.emplace();
  check_processes(config_, parts_.world->size());
  connect_devices(*parts_.world, parts_.device, config_);
  divide_states();
  if (args_.optimizer_in_backward) update_in_backward();
  // transformers' floating_point_ops: 6 a token and parameter outside the embeddings.
  for (const NamedTensor& parameter : parts_.model->parameters()) {
    const bool is_embedding = parameter.name.find("_embeddings.weight") != std::string::npos;
    if (!is_embedding) flos_per_token_ += 6.0 * static_cast<double>(parameter.tensor.numel());
  }
}

// What depends on the effective batch, which a resumed run keeps from its first start.
void Trainer::prepare(int64_t effective_batch_size) {
  state_.effective_batch_size = effective_batch_size;
  plan_.accumulation = effective_batch_size / (rows_at_a_time_ * parts_.world->size());
  if (args_.optimizer_in_backward && plan_.accumulation > 1) {
    throw Error(ErrorKind::kConfig,
                "optimizer_in_backward: true excludes accumulation, and this run's batch of " +
                    std::to_string(effective_batch_size) + " samples is cut into " +
                    std::to_string(plan_.accumulation) +
                    ": a gradient that is freed at once cannot be summed; set "
                    "per_device_train_batch_size to " +
                    std::to_string(effective_batch_size / parts_.world->size()) +
                    ", or leave optimizer_in_backward out");
  }
  make_loader();
  const int64_t per_epoch = loader_->updates_per_epoch();
  plan_.max_steps = args_.max_steps > 0
                        ? args_.max_steps
                        : static_cast<int64_t>(
                              std::ceil(args_.num_train_epochs * static_cast<double>(per_epoch)));
  plan_.num_train_epochs = args_.max_steps > 0 && !stream_
                               ? (args_.max_steps + per_epoch - 1) / per_epoch
                               : static_cast<int64_t>(std::ceil(args_.num_train_epochs));
  plan_.warmup_steps = steps_or_ratio(args_.warmup_steps, plan_.max_steps);
  plan_.logging_steps = steps_or_ratio(args_.logging_steps, plan_.max_steps);
  plan_.save_steps = steps_or_ratio(args_.save_steps, plan_.max_steps);
  plan_.eval_steps = args_.eval_steps ? steps_or_ratio(*args_.eval_steps, plan_.max_steps) : 0;
  schedule_ = make_schedule({.type = args_.lr_scheduler_type,
                             .learning_rate = args_.learning_rate,
                             .warmup_steps = plan_.warmup_steps,
                             .max_steps = plan_.max_steps,
                             .kwargs_json = args_.lr_scheduler_kwargs.text,
                             .greater_is_better = args_.greater_is_better.value_or(false)});
}

void Trainer::make_loader() {
  plan_.accumulation = state_.effective_batch_size / (rows_at_a_time_ * parts_.world->size());
  // Kept with the run: another one would make another order of what is left of the epoch.
  if (sampling_strategy(args_) == SamplingStrategy::kGroupByLength && state_.length_group == 0) {
    state_.length_group =
        default_length_group(parts_.train_data->size(), state_.effective_batch_size);
  }
  LoaderOptions options = loader_options(args_, plan_.accumulation * parts_.world->size(),
                                         state_.length_group, parts_.setup->packed_length());
  options.batch_size = rows_at_a_time_;
  options.part = parts_.world->rank();
  options.parts = parts_.world->size();
  loader_ =
      std::make_unique<Loader>(parts_.train_data, parts_.collator, options, show_steps(progress_));
}

int Trainer::run() {
  session_start_ = now_seconds();
  counted_until_ = session_start_;
  state_.max_steps = plan_.max_steps;
  ++state_.sessions;
  open_events();
  say_idle_threads();
  reserve_memory();
  prepare_saving();
  session_first_step_ = state_.step;
  expect_times();
  progress_.begin("train", plan_.max_steps, state_.step);
  if (state_.evaluation_pending && !finish_step()) return stop_early();
  if (args_.eval_on_start && state_.step == 0 && !logged_metrics(0)) {
    const std::optional<Json> metrics = evaluate_weights();
    if (!metrics) return stop_early();
    log(*metrics);  // no best model, schedule or early stopping yet, as in transformers
  }
  while (!is_last_step() && !state_.stop_early) {
    begin(SessionClock::Unit::kStep);
    const bool stops = agree_to_stop();
    if (went_back_from_save()) continue;
    if (stops) return stop_early();
    storage_.check_ours();
    // A run that went back may be where an evaluation was cut.
    if (state_.evaluation_pending) {
      if (!finish_step()) return stop_early();
      continue;
    }
    const Position position = state_.position;
    const StepReport report = step_within_memory();
    if (report.interrupted) return stop_early();
    if (report.fault && !mend(report)) continue;
    accept(report);
    end(SessionClock::Unit::kStep);
    if (went_back_from_poison(position)) continue;
    if (!finish_step()) return stop_early();
  }
  progress_.end();
  exported_step_ = state_.step;
  storage_.check_ours();
  return finish();
}

// One optimizer update. Accumulation only bounds memory: because every micro-batch is divided by
// the same global target count, the update equals that of one large batch.
Trainer::StepReport Trainer::step() {
  is_updating_ = false;
  stop_came_ = false;
  released_ = {};
  StepReport report{.learning_rate = schedule_->learning_rate(state_.updates)};
  if (is_left_out(state_.divergence, state_.position, state_.effective_batch_size)) {
    report.left_out = true;
    log::info("step " + std::to_string(state_.step + 1) + " makes no update: its samples from " +
              std::to_string(state_.position.sample) + " of epoch " +
              std::to_string(state_.position.epoch) + " on are left out, as decided before");
    return report;
  }
  const std::span<const Batch> micro_batches = loader_->take(state_.position);
  const auto terms = static_cast<size_t>(parts_.task->terms());
  // Of targets, of tokens, of tokens with padding, of processes that have such targets.
  std::vector<int64_t> counts(2 * terms + 2, 0);
  for (const Batch& batch : micro_batches) {
    const std::vector<int64_t> targets = parts_.task->count_targets(batch);
    for (size_t term = 0; term < terms; ++term) counts[term] += targets[term];
    counts[terms] += batch.tokens;
    counts[terms + 1] += batch.cells();
  }
  const std::vector<int64_t> own = counts;
  for (size_t term = 0; term < terms; ++term) counts[terms + 2 + term] = own[term] > 0 ? 1 : 0;
  parts_.world->sum(counts);
  std::vector<double> scales;
  for (size_t term = 0; term < terms; ++term) {
    // The mean over all targets, or the processes' mean of theirs.
    const auto targets = args_.average_tokens_across_devices
                             ? static_cast<double>(counts[term])
                             : static_cast<double>(own[term] * counts[terms + 2 + term]);
    scales.push_back((scaler_ ? scaler_->scale() : 1.0) / std::max(1.0, targets));
  }
  report.tokens = counts[terms];
  report.padded_tokens = counts[terms + 1];

  // Logical shards bring gradients of their own: memory that waits for the sum would be one more.
  const bool keeps_memory = !args_.optimizer_in_backward && !has_shards();
  parts_.model->store().clear_gradients(keeps_memory);
  released_ = {.learning_rate = report.learning_rate};
  if (!add_micro_batches(micro_batches, scales, report)) return {.interrupted = true};
  if (poison_.is_for(Poisoned::kLoss, state_.step + 1)) report.loss = std::nan("");
  poison_.spoil_gradient(parts_.model->store(), state_.step + 1);
  begin(SessionClock::Unit::kUpdate);
  update_weights(report);
  end(SessionClock::Unit::kUpdate);
  parts_.model->store().clear_gradients(keeps_memory);
  return report;
}

double Trainer::add_gradients(const Batch& batch, const std::vector<double>& scales) {
  const auto seed = static_cast<uint64_t>(args_.seed);
  parts_.model->store().begin_micro_batch(
      {.seed = seed, .update = state_.step, .first_place = batch.first_place});
  const std::vector<Tensor> sums = parts_.task->loss_sums(
      batch, {.dropout = {.seed = seed, .update = state_.step, .first_place = batch.first_place},
              .scales = scales});
  Tensor share;  // terms hang on one graph, so one backward pass serves them all
  for (size_t term = 0; term < sums.size(); ++term) {
    if (!sums[term].defined()) continue;
    const Tensor part = sums[term] * scales[term];
    share = share.defined() ? share + part : part;
  }
  if (!share.defined()) return 0.0;
  const double loss = share.item<double>();
  const double unscaled = loss / (scaler_ ? scaler_->scale() : 1.0);
  // Weights that are updated in the backward pass must not see what is no number, or a spike.
  const bool is_faulty = args_.optimizer_in_backward
                             ? has_faulty_loss(divergence_options(), state_.divergence, unscaled)
                             : !std::isfinite(loss);
  if (!is_faulty) {
    if (args_.optimizer_in_backward) saver_->before_update();
    share.backward();
  }
  return unscaled;
}

void Trainer::update_weights(StepReport& report) {
  const DivergenceOptions options = divergence_options();
  if (args_.optimizer_in_backward) {
    report.grad_norm = std::sqrt(released_.squares);
    report.fault = fault_of(options, state_.divergence, report.loss, report.grad_norm);
    report.applied = !report.fault;
    return;
  }
  const double scale = scaler_ ? scaler_->scale() : 1.0;
  report.grad_norm = share_norm(gradient_norm(parts_.model->store()) / scale);
  report.fault = fault_of(options, state_.divergence, report.loss, report.grad_norm);
  if (!report.fault) {
    // torch.nn.utils.clip_grad_norm_
    const double clip = args_.max_grad_norm / (report.grad_norm + 1e-6);
    const double factor = args_.max_grad_norm > 0.0 && clip < 1.0 ? clip : 1.0;
    saver_->before_update();
    is_updating_ = true;
    const OneThread guard(is_one_threaded() && !parts_.optimizer->is_blockwise());
    parts_.optimizer->step(report.learning_rate, factor / scale, state_.step);
    if (owned_weights_) owned_weights_->share();
    is_updating_ = false;
    report.applied = true;
    if (scaler_) scaler_->update(/*overflowed=*/false);
    return;
  }
  // No scale helps a loss that is none, or a spike.
  if (!scaler_ || !std::isfinite(report.loss) || std::isfinite(report.grad_norm)) return;
  scaler_->update(/*overflowed=*/true);
  // Nor what overflows with the smallest: the run diverged.
  if (scaler_->scale() < kSmallestLossScale) return;
  report.fault.reset();
  report.overflowed = true;
  log::warning("step " + std::to_string(state_.step + 1) +
               ": float16 overflowed, no update; the loss scale is now " +
               format_double(scaler_->scale()));
}

// What lives as long as the run comes before the first activations: it would lie scattered among
// what every step takes and frees, which then has no room.
void Trainer::reserve_memory() {
  for (Optimizer::Slot& slot : parts_.optimizer->slots()) {
    if (slot.state.empty() && !slot.is_elsewhere) parts_.optimizer->create_state(slot);
  }
  make_buckets();
  if (!args_.optimizer_in_backward && !buckets_ && !has_shards()) {
    parts_.model->store().reserve_gradients();
  }
  release_startup_code();
  keep_freed_memory();
}

// Each parameter as soon as its gradient is whole. What is not finite updates nothing; where others
// were updated before it, the run ends without a save.
void Trainer::update_in_backward() {
  parts_.model->store().on_complete([this](Parameter& parameter) {
    const double norm =
        at::linalg_vector_norm(parameter.gradient, 2, std::nullopt, false, at::kFloat)
            .item<double>();
    released_.squares += norm * norm;
    if (std::isfinite(released_.squares)) {
      const auto place =
          static_cast<size_t>(&parameter - parts_.model->store().parameters().data());
      parts_.optimizer->step_one(place, released_.learning_rate, 1.0, state_.step);
      ++released_.updated;
    }
    parameter.gradient = Tensor();
  });
}

void Trainer::accept(const StepReport& report) {
  ++state_.step;
  state_.position = loader_->after(state_.position);
  if (report.applied) {
    ++state_.updates;
    state_.last_grad_norm = report.grad_norm;
    count_update(divergence_options(), state_.divergence, state_.step, report.loss,
                 report.grad_norm);
    poison_.spoil_state(*parts_.optimizer, state_.step);
  } else if (report.overflowed || !std::isfinite(report.loss + report.grad_norm)) {
    ++state_.nonfinite_updates;
  }
  if (report.fault || report.left_out) {
    ++state_.divergence.skipped_updates;
    // As transformers' logging_nan_inf_filter: the mean of the others stands in.
    const int64_t others = state_.step - 1 - state_.window_first_step;
    if (others > 0) state_.window_loss += state_.window_loss / static_cast<double>(others);
  } else {
    state_.window_loss += report.loss;
  }
  state_.last_learning_rate = report.learning_rate;
  session_tokens_ += report.tokens;
  if (options_.on_step) options_.on_step(state_.step);
  if (args_.include_num_input_tokens_seen == "all") state_.tokens_seen += report.padded_tokens;
  if (args_.include_num_input_tokens_seen == "non_padding") state_.tokens_seen += report.tokens;
  state_.total_flos += flos_per_token_ * static_cast<double>(report.padded_tokens);
  progress_.update(state_.step,
                   {.loss = report.loss,
                    .learning_rate = report.learning_rate,
                    .tokens_per_second = static_cast<double>(session_tokens_) /
                                         std::max(1e-9, now_seconds() - session_start_),
                    .memory_mib = static_cast<int64_t>(peak_memory_bytes(parts_.device) >> 20),
                    .cost = cost_text()});
}

// In transformers' order: log, evaluate, save. A stop that cuts the evaluation leaves it pending:
// it is the first thing that the next session does.
bool Trainer::finish_step() {
  if (!state_.evaluation_pending && log_is_due()) log_window();
  new_best_ = false;
  if (state_.evaluation_pending || evaluation_is_due()) {
    state_.evaluation_pending = true;
    if (!evaluate_now()) return false;
    state_.evaluation_pending = false;
  }
  save_if_due();
  if (options_.stop_at_step && state_.step >= *options_.stop_at_step) interrupt::request(SIGTERM);
  // Where training goes on, the next step begins with that question.
  return is_last_step() || !state_.stop_early || !stop_is_requested();
}

bool Trainer::evaluate_now() {
  const std::optional<Json> metrics = evaluate_weights();
  if (!metrics) return false;
  take_metrics(*metrics);
  return true;
}

std::optional<Json> Trainer::evaluate_weights() {
  std::optional<EvaluationResult> result = evaluate_within_memory(Split::kValidation);
  if (!result) return std::nullopt;
  log::info(describe_metrics(result->metrics) + " at step " + std::to_string(state_.step));
  if (result->files) {
    try {
      if (parts_.world->is_first()) result->files->write(files_, args_.output_dir);
      files_of_step_ = best_is_loaded_ ? exported_step_ : state_.step;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIo || is_last_step()) throw;
      log::warning("the predictions of step " + std::to_string(state_.step) +
                   " are not written, training goes on: " + std::string(error.what()));
    }
  }
  return result->metrics;
}

// Best metric, plateau schedules and early stopping, as transformers' Trainer and its callback.
void Trainer::take_metrics(const Json& metrics) {
  log(metrics);
  if (!args_.metric_for_best_model) return;
  const std::string key = best_metric_key(args_);
  if (!metrics.contains(key)) {
    throw Error(ErrorKind::kConfig, config_.where("metric_for_best_model") +
                                        ": metric_for_best_model: the evaluation has no '" + key +
                                        "'; it has " + describe_metrics(metrics));
  }
  const double value = metrics[key].is_number() ? metrics[key].get<double>() : std::nan("");
  schedule_->observe(value);
  const bool greater = args_.greater_is_better.value_or(false);
  const auto& best = trainer_state_.best_metric;
  const bool better = std::isfinite(value) && (!best || (greater ? value > *best : value < *best));
  if (args_.early_stopping_patience) {
    const bool counts =
        better && (!best || std::abs(value - *best) > args_.early_stopping_threshold);
    state_.early_stopping_counter = counts ? 0 : state_.early_stopping_counter + 1;
    if (state_.early_stopping_counter >= *args_.early_stopping_patience) {
      state_.stop_early = true;
      log::info("early stopping: " + key + " has not improved in " +
                std::to_string(state_.early_stopping_counter) + " evaluations");
    }
  }
  if (better) {
    trainer_state_.best_metric = value;
    if (args_.save_strategy != "no") trainer_state_.best_global_step = state_.step;
    new_best_ = true;
  }
}

void Trainer::log_window() {
  const int64_t steps = state_.step - state_.window_first_step;
  Json values;
  values["loss"] = state_.window_loss / static_cast<double>(steps);
  values["grad_norm"] = state_.last_grad_norm;
  values["learning_rate"] = state_.last_learning_rate;
  const double loss = values["loss"].get<double>();
  state_.total_loss += state_.window_loss;
  state_.window_loss = 0.0;
  state_.window_first_step = state_.step;
  log(std::move(values));
  progress_.log(state_.step, {.loss = loss,
                              .learning_rate = state_.last_learning_rate,
                              .tokens_per_second = {},
                              .memory_mib = {},
                              .cost = {}});
}

void Trainer::log(Json values) {
  trainer_state_.epoch = epoch();
  trainer_state_.global_step = state_.step;
  if (args_.include_num_input_tokens_seen != "no") {
    values["num_input_tokens_seen"] = state_.tokens_seen;
  }
  const Json entry = trainer_state_.log(std::move(values));
  if (!events_) return;
  for (const auto& [key, value] : entry.items()) {
    if (key != "step" && value.is_number()) {
      events_->add_scalar(tensorboard_tag(key), value.get<double>(), state_.step);
    }
  }
  events_->flush();
}

void Trainer::open_events() {
  if (!args_.reports_to("tensorboard") || !parts_.world->is_first()) return;
  const std::string runs = args_.logging_dir.value_or(join_path(args_.output_dir, "runs"));
  try {
    const std::string folder = tensorboard_folder(files_, runs);
    files_.make_directories(folder);
    events_ = std::make_unique<EventWriter>(files_, folder, state_.step > 0 ? state_.step + 1 : -1);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || state_.step == 0) throw;  // nothing is lost yet
    log::warning("this session is not written for TensorBoard, training goes on: " +
                 std::string(error.what()));
  }
}

// transformers: micro-batches of this epoch that are behind us, by all of them.
double Trainer::epoch() const {
  const int64_t rows = rows_at_a_time_ * parts_.world->size();
  const auto batches = [&](int64_t samples) {
    return static_cast<double>((samples + rows - 1) / rows);
  };
  // Of a stream's first epoch only that it has no more than all updates take; as in transformers.
  const bool is_known = !stream_ || state_.position.epoch > 0;
  const int64_t samples =
      is_known ? loader_->samples_per_epoch() : plan_.max_steps * state_.effective_batch_size;
  return static_cast<double>(state_.position.epoch) +
         batches(state_.position.sample) / batches(samples);
}

bool Trainer::is_epoch_end() const {
  return state_.step > 0 && (state_.position.sample == 0 || is_last_step());
}

bool Trainer::log_is_due() const {
  if (state_.step <= state_.window_first_step) return false;
  if (state_.step == 1 && args_.logging_first_step) return true;
  if (args_.logging_strategy == "epoch") return is_epoch_end();
  return args_.logging_strategy == "steps" && state_.step % plan_.logging_steps == 0;
}

bool Trainer::evaluation_is_due() const {
  if (!parts_.validation_data) return false;
  if (args_.eval_strategy == "epoch") return is_epoch_end() && epoch() >= args_.eval_delay;
  if (args_.eval_strategy != "steps" || static_cast<double>(state_.step) < args_.eval_delay) {
    return false;
  }
  return state_.step % plan_.eval_steps == 0 || is_last_step();
}

bool Trainer::save_is_due() const {
  if (args_.save_strategy == "epoch") return is_epoch_end();
  if (args_.save_strategy == "best") return new_best_;
  if (args_.save_strategy != "steps") return false;
  return state_.step % plan_.save_steps == 0 || is_last_step();
}

// Where the update was not applied, weights and optimizer are those of the step before.
void Trainer::diverged(const StepReport& report, const Damage& damage,
                       const std::string& nonfinite) {
  progress_.end();
  if (!std::isfinite(report.loss + report.grad_norm)) ++state_.nonfinite_updates;
  const int64_t tries = state_.divergence.tries;
  state_.divergence.tries = 0;     // the next start has them anew
  if (scaler_) scaler_.emplace();  // what no loss scale helped begins with a new one
  std::string outcome = "; nothing is saved and the run goes on from the checkpoint before";
  if (damage.is_half_applied) {
    outcome =
        "; some weights were updated in the backward pass already, so nothing is saved and "
        "the run goes on from the checkpoint before";
  } else if (!damage.is_in_state) {
    const bool saved = save_if_missing();
    outcome = "; the update was not applied and the state of step " + std::to_string(state_.step) +
              (saved ? " is saved" : " is kept");
  }
  if (damage.is_in_state) {
    outcome = ", and " + nonfinite + " holds NaN or an infinite number" + outcome;
  }
  if (tries > 1) outcome = " (" + std::to_string(tries) + " times without progress)" + outcome;
  throw Error(ErrorKind::kData, "step " + std::to_string(state_.step + 1) + ": " + *report.fault +
                                    outcome + "; lower learning_rate (now " +
                                    figure_text(report.learning_rate) +
                                    (args_.max_grad_norm > 0 ? ") or max_grad_norm"
                                                             : ") or set max_grad_norm (now 0: no "
                                                               "clipping)") +
                                    (tries > 1 && !args_.loss_spike_factor
                                         ? ", or set loss_spike_factor, which finds the update "
                                           "that led there,"
                                         : "") +
                                    " and run the same command again");
}

std::string Trainer::how_to_go_on() const {
  if (options_.restart) return "run the command again without --restart to go on";
  if (args_.resume_from_checkpoint == "none") {
    return "run the command again with resume_from_checkpoint: auto to go on";
  }
  return "run the same command again to go on";
}

int Trainer::stop_early() {
  progress_.end();
  const bool asked = options_.stop_at_step && state_.step >= *options_.stop_at_step;
  std::string by = asked ? "--stop_at_step" : interrupt::signal_name();
  if (by.empty()) by = "a signal to another process";
  const std::string why = "stopped by " + by;
  if (!save_if_missing()) {
    log::error(why + " at step " + std::to_string(state_.step) +
               ", but the state could not be saved" +
               (nonfinite_save_ ? " (" + *nonfinite_save_->nonfinite + ")" : std::string()) +
               "; the run goes on from the checkpoint before");
    return kExitFailed;
  }
  log::info(why + " at step " + std::to_string(state_.step) + " of " +
            std::to_string(plan_.max_steps) + " with everything saved in " +
            checkpoint_path(state_.step) + "; " + how_to_go_on());
  say_session();
  return kExitStoppedEarly;
}

}  // namespace finetune
