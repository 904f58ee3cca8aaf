// SPDX-License-Identifier: MIT
#include "train/loop/trainer.h"

#include <ATen/core/Tensor.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "train/save/agreement.h"
#include "train/save/checkpoint_contents.h"
#include "train/session/session_events.h"
#include "train/session/start_text.h"

namespace finetune {
namespace {

// For a guess at how long a run lasts; samples are rarely shorter.
constexpr double kTokensOfShortSample = 32;

// transformers' floating_point_ops: 6 per token and parameter outside the embeddings.
double flos_per_token(const Model& model) {
  double flos = 0.0;
  for (const Weight& weight : model.weights()) {
    if (!is_ordinary(weight.role())) continue;
    flos += 6.0 * static_cast<double>(weight.numel());
  }
  return flos;
}

}  // namespace

Trainer::Trainer(const LoadedConfig& config, const RunOptions& options, RunStorage& storage,
                 Parts& parts, ProgressDisplay& progress)
    : run_(config, options, storage, parts, progress),
      watch_(run_),
      log_(run_, watch_),
      model_(model_part(*parts.model, parts.model_config, run_.divided.gather.get())),
      saving_(run_, watch_, checkpoint_contents(run_, model_), checkpoint_records(run_)),
      step_(run_, saving_, watch_),
      memory_(run_, saving_, step_),
      evaluations_(run_, memory_, log_),
      best_(run_, saving_, model_),
      recovery_(run_, saving_),
      start_(run_, memory_, saving_),
      end_(run_, saving_, evaluations_, best_, log_, watch_),
      poison_(Poison::from_environment()),
      compile_progress_(compile_progress_of(parts.device)),
      flos_per_token_(flos_per_token(*parts.model)) {}

int Trainer::run() {
  begin_session();
  if (run_.state.evaluation_pending && finish_step() == Outcome::kStopped) return stop_early();
  const bool evaluates_first =
      run_.args.eval_on_start && run_.state.step == 0 && !logged_metrics(run_.trainer_state, 0);
  if (evaluates_first && !evaluations_.evaluate_first()) return stop_early();
  while (!run_.is_last_step() && !run_.state.stop_early) {
    if (run_round() == Outcome::kStopped) return stop_early();
  }
  run_.progress.end();
  run_.storage.check_ours();
  return finish();
}

void Trainer::begin_session() {
  const int64_t samples_left =
      (run_.plan.max_steps - run_.state.step) * run_.state.effective_batch_size;
  watch_.start(flos_per_token_ * kTokensOfShortSample * static_cast<double>(samples_left));
  run_.state.max_steps = run_.plan.max_steps;
  ++run_.state.sessions;
  if (run_.world().is_first()) {
    // Only now: a refused command changes nothing.
    checkpoint::sweep_stale(run_.files, run_.args.output_dir,
                            [](const std::string& line) { log::warning(line); });
    run_.storage.folder().session_log().start(start_event(run_), run_.state.sessions);
  }
  log_.open();
  log_idle_threads();
  step_.reserve_memory();
  saving_.prepare();
  for (const std::string& line : start_lines(run_, watch_.seconds_left(), watch_.cost_text())) {
    log::info(line);
  }
  run_.progress.begin("train", run_.plan.max_steps, run_.state.step);
  compile_progress_.start(run_.state.step);
}

Trainer::Outcome Trainer::run_round() {
  watch_.begin(SessionClock::Unit::kStep, saving_.is_busy());
  const bool stops = agree_between_updates(run_.world(), saving_.nonfinite());
  if (const auto reason = recovery_.after_save()) {
    roll_back(*reason);
    return Outcome::kContinue;
  }
  if (stops) return Outcome::kStopped;
  run_.storage.check_ours();
  // After a rollback the run may be at a step whose evaluation was interrupted.
  if (run_.state.evaluation_pending) return finish_step();
  const Position position = run_.state.position;
  const StepReport report = memory_.run_step();
  if (report.interrupted) return Outcome::kStopped;
  if (report.fault) {
    if (const auto reason = recovery_.after_fault(report)) {
      roll_back(*reason);
      return Outcome::kContinue;
    }
  }
  accept(report);
  watch_.end(SessionClock::Unit::kStep);
  if (const auto reason = recovery_.after_step(report, position)) {
    roll_back(*reason);
    return Outcome::kContinue;
  }
  return finish_step();
}

void Trainer::accept(const StepReport& report) {
  RunState& state = run_.state;
  const TrainingArgs& args = run_.args;
  ++state.step;
  state.position = run_.loader->after(state.position);
  if (report.applied) {
    ++state.updates;
    state.last_grad_norm = report.grad_norm;
    count_update(run_.divergence_options(), state.divergence, state.step, report.loss,
                 report.grad_norm);
    poison_.spoil_state(*run_.parts.optimizer, state.step);
  } else if (report.overflowed || !std::isfinite(report.loss + report.grad_norm)) {
    ++state.nonfinite_updates;
  }
  count_loss(report);
  state.last_learning_rate = report.learning_rate;
  watch_.count_step(report.tokens);
  compile_progress_.after_step(state.step);
  if (run_.options.on_step) run_.options.on_step(state.step);
  if (args.include_num_input_tokens_seen == "all") {
    state.tokens_seen += report.padded_tokens;
  } else if (args.include_num_input_tokens_seen == "non_padding" ||
             task_of(args.task).logs_tokens) {
    state.tokens_seen += report.tokens;
  }
  state.total_flos += flos_per_token_ * static_cast<double>(report.padded_tokens);
  run_.progress.update(state.step, {.loss = report.loss,
                                    .learning_rate = report.learning_rate,
                                    .tokens_per_second = watch_.tokens_per_second(),
                                    .memory_mib = watch_.peak_memory_mib(),
                                    .cost = watch_.cost_text(),
                                    .epoch = run_.epoch(),
                                    .next_save = run_.next_save(),
                                    .session_seconds_left = watch_.session_seconds_left(),
                                    .ceiling_share = watch_.ceiling_share()});
}

void Trainer::count_loss(const StepReport& report) {
  RunState& state = run_.state;
  if (!report.fault && !report.left_out) {
    state.window_loss += report.loss;
    count_measures(report);
    return;
  }
  ++state.divergence.skipped_updates;
  // As with transformers' logging_nan_inf_filter, the mean of the other losses takes its place.
  const int64_t others = state.step - 1 - state.window_first_step;
  if (others == 0) return;
  state.window_loss += state.window_loss / static_cast<double>(others);
}

void Trainer::count_measures(const StepReport& report) {
  RunState& state = run_.state;
  const size_t measures = report.measures.size();
  if (state.window_measured.size() != measures) {
    // A state of an earlier version has sums over all updates of the window.
    const bool has_sums = state.window_measures.size() == measures;
    state.window_measured.assign(measures, has_sums ? state.step - 1 - state.window_first_step : 0);
    state.window_measures.resize(measures, 0.0);
  }
  for (size_t i = 0; i < measures; ++i) {
    if (!report.is_measured[i]) continue;
    state.window_measures[i] += report.measures[i];
    ++state.window_measured[i];
  }
}

// A stop during the evaluation leaves it pending; the next session starts with it.
Trainer::Outcome Trainer::finish_step() {
  const RunState& state = run_.state;
  const std::optional<int64_t>& last = run_.options.stop_at_step;
  if (!state.evaluation_pending && run_.log_is_due()) log_.log_window();
  if (!evaluations_.evaluate_if_due()) return Outcome::kStopped;
  saving_.save_if_due();
  if (last && state.step >= *last) interrupt::request(SIGTERM);
  // If training continues, the next iteration asks for a stop anyway.
  if (run_.is_last_step() || !state.stop_early) return Outcome::kContinue;
  return stop_is_requested(run_.world()) ? Outcome::kStopped : Outcome::kContinue;
}

void Trainer::roll_back(const std::string& reason) {
  run_.progress.end();
  saving_.settle();
  const checkpoint::CheckpointEntry entry = recovery_.choose_checkpoint(reason);
  const RunState before = run_.state;
  run_.state = RunState();
  run_.trainer_state = TrainerState();
  saving_.before_update();  // weights and states are about to change
  // The file has no states for parameters that were not updated until then, so reset all.
  for (Optimizer::Slot& slot : run_.parts.optimizer->slots()) {
    slot.updates = 0;
    if (!slot.is_elsewhere) run_.parts.optimizer->create_state(slot);
  }
  if (run_.scaler) run_.scaler.emplace();
  restore(entry, run_.files);
  RunState& state = run_.state;
  if (entry.foreign) state.run_id = before.run_id;
  state.divergence = after_rollback(before.divergence, state.divergence);
  state.max_steps = run_.plan.max_steps;
  state.sessions = before.sessions;
  run_.storage.folder().session_log().add(
      "rollback", {{"from", before.step}, {"to", state.step}, {"reason", reason}});
  watch_.skip_seconds();
  evaluations_.rolled_back();
  log_.open();
  run_.progress.begin("train", run_.plan.max_steps, state.step);
}

int Trainer::finish() {
  const std::optional<int> code = end_.finish(recovery_.faults_text());
  if (!code) return stop_early();
  nlohmann::ordered_json end = {{"code", *code}, {"step", run_.state.step}, {"reason", "finished"}};
  watch_.add_bucket(end);
  run_.storage.folder().session_log().add("end", end);
  return *code;
}

int Trainer::stop_early() {
  run_.progress.end();
  const int64_t step = run_.state.step;
  const std::optional<int64_t>& last = run_.options.stop_at_step;
  std::string by = last && step >= *last ? "--stop_at_step" : interrupt::signal_name();
  if (by.empty()) by = "a signal to another process";
  const std::string what = "stopped by " + by + " at step " + std::to_string(step);
  if (!saving_.save_if_missing()) {
    const std::optional<SaveOutcome>& save = saving_.nonfinite();
    const std::string problem = what + ", but the state could not be saved" +
                                (save ? " (" + *save->nonfinite + ")" : std::string()) +
                                "; the run resumes from the previous checkpoint";
    log::error(problem);
    run_.storage.folder().session_log().add("error", {{"step", step}, {"message", problem}});
    return kExitFailed;
  }
  log::info(what + " of " + std::to_string(run_.plan.max_steps) + " with everything saved in " +
            run_.checkpoint_path(step) + "; " + how_to_resume());
  run_.storage.folder().session_log().add(
      "end", {{"code", kExitStoppedEarly}, {"step", step}, {"reason", "stopped by " + by}});
  watch_.log_progress();
  return kExitStoppedEarly;
}

std::string Trainer::how_to_resume() const {
  if (run_.options.restart) return "run the command again without --restart to resume";
  if (run_.args.resume_from_checkpoint == "none") {
    return "run the command again with resume_from_checkpoint: auto to resume";
  }
  return "run the same command again to resume";
}

// Explains idle threads, because users expect more threads to help.
void Trainer::log_idle_threads() const {
  const int64_t threads = num_threads();
  const int64_t busy = run_.split.accumulation;
  if (!run_.is_one_threaded() || busy >= threads) return;
  log::info("full_determinism: one thread computes each micro-batch, so " + std::to_string(busy) +
            " of " + std::to_string(threads) +
            " threads compute in each process; lower per_device_train_batch_size and raise "
            "gradient_accumulation_steps to use more");
}

}  // namespace finetune
