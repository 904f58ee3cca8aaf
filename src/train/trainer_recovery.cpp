// SPDX-License-Identifier: MIT
// What the trainer does where an update must not stand, or memory does not suffice for one.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/report/figure_text.h"
#include "finetune/state/finite_state.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/clock.h"
#include "train/shared_start.h"
#include "train/trainer.h"

namespace finetune {
namespace {

std::string samples_text(const LeftOut& out) {
  return "samples " + std::to_string(out.position.sample) + " to " +
         std::to_string(out.position.sample + out.samples - 1) + " of epoch " +
         std::to_string(out.position.epoch);
}

std::string try_text(const DivergenceState& state, const DivergenceOptions& options) {
  return "try " + std::to_string(state.tries) + " of " + std::to_string(options.max_tries);
}

}  // namespace

DivergenceOptions Trainer::divergence_options() const {
  return {.policy = args_.divergence_policy == "skip"       ? DivergencePolicy::kSkip
                    : args_.divergence_policy == "rollback" ? DivergencePolicy::kRollBack
                                                            : DivergencePolicy::kStop,
          .max_tries = args_.divergence_max_tries,
          .loss_spike_factor = args_.loss_spike_factor,
          .grad_norm_spike_factor = args_.grad_norm_spike_factor};
}

LeftOut Trainer::samples_of_update(const Position& position) const {
  // The end of an epoch has been seen where an update is the last one in it.
  const Position next = loader_->after(position);
  const int64_t end = next.epoch == position.epoch ? next.sample : loader_->samples_per_epoch();
  return {.position = position, .samples = end - position.sample};
}

// True: the step stands without its update. False: the run went back.
bool Trainer::mend(const StepReport& report) {
  const DivergenceOptions options = divergence_options();
  const std::string nonfinite = nonfinite_state();
  const Damage damage{.is_half_applied = released_.updated > 0, .is_in_state = !nonfinite.empty()};
  count_fault(state_.divergence, state_.step + 1);
  const Remedy remedy = remedy_for(options, state_.divergence, damage);
  if (remedy == Remedy::kStop) diverged(report, damage, nonfinite);
  const LeftOut update = samples_of_update(state_.position);
  if (remedy == Remedy::kSkip) {
    log::warning("step " + std::to_string(state_.step + 1) + ": " + *report.fault +
                 "; the update is skipped (" + samples_text(update) + ", " +
                 try_text(state_.divergence, options) + ")");
    return true;
  }
  std::string reason = "step " + std::to_string(state_.step + 1) + ": " + *report.fault;
  if (damage.is_in_state) {
    // An update before this one did it; which, is found on the way here again.
    reason += ", and " + nonfinite + " holds NaN or an infinite number";
    state_.divergence.watched_until = state_.step;
  } else {
    state_.divergence.left_out.push_back(update);
    reason += "; " + samples_text(update) + " are left out";
  }
  roll_back(reason);
  return false;
}

// What is evaluated or exported next has to be numbers. True: it was not, the run went back.
bool Trainer::went_back_from_poison(const Position& position) {
  const bool watched = state_.step <= state_.divergence.watched_until;
  const bool stops = parts_.world->size() > 1 ? stop_came_ : interrupt::is_requested();
  if (!watched && !evaluation_is_due() && !is_last_step() && !stops) return false;
  const std::string nonfinite = nonfinite_state();
  if (nonfinite.empty()) return false;
  const DivergenceOptions options = divergence_options();
  count_fault(state_.divergence, state_.step);
  const std::string reason = "step " + std::to_string(state_.step) + ": " + nonfinite +
                             " holds NaN or an infinite number behind the update";
  if (remedy_for(options, state_.divergence, {.is_in_state = true}) == Remedy::kStop) {
    throw_poison(reason);
  }
  if (watched) {
    const LeftOut update = samples_of_update(position);
    state_.divergence.left_out.push_back(update);
    roll_back(reason + "; " + samples_text(update) + " are left out");
  } else {
    state_.divergence.watched_until = state_.step;
    roll_back(reason + ", of this or an earlier step");
  }
  return true;
}

bool Trainer::went_back_from_save() {
  if (!nonfinite_save_) return false;
  const int64_t step = nonfinite_save_->step;
  const std::string reason = "step " + std::to_string(step) +
                             ", which was to be saved: " + *nonfinite_save_->nonfinite +
                             "; this or an earlier update made it";
  count_fault(state_.divergence, step);
  const DivergenceOptions options = divergence_options();
  if (remedy_for(options, state_.divergence, {.is_in_state = true}) == Remedy::kStop) {
    throw_poison(reason);
  }
  // Of that step, not of the one that training has come to meanwhile: which updates are looked at
  // must not depend on how long the disk took.
  state_.divergence.watched_until = std::max(state_.divergence.watched_until, step);
  roll_back(reason);
  return true;
}

void Trainer::throw_poison(const std::string& reason) const {
  progress_.end();
  throw Error(ErrorKind::kData,
              reason +
                  "; nothing is saved and the run goes on from the checkpoint before; lower "
                  "learning_rate (now " +
                  figure_text(state_.last_learning_rate) +
                  ") or max_grad_norm and run the same command again");
}

// In the same process, as a restart would.
void Trainer::roll_back(const std::string& reason) {
  progress_.end();
  settle_saves();
  const auto entry = share_checkpoint(*parts_.world, [&] {
    return checkpoint::find_newest_good(files_, args_.output_dir,
                                        [](const std::string& line) { log::warning(line); });
  });
  if (!entry) {
    throw Error(ErrorKind::kData,
                reason +
                    "; divergence_policy: rollback has no checkpoint to go back to yet; lower "
                    "learning_rate (now " +
                    figure_text(state_.last_learning_rate) +
                    ") or save_steps and run the same command again");
  }
  log::warning(reason + "; going back to " + entry->path + " (" +
               try_text(state_.divergence, divergence_options()) + ")");
  const RunState before = state_;
  state_ = RunState();
  trainer_state_ = TrainerState();
  saved_step_ = -1;
  save_is_owed_ = false;
  nonfinite_save_.reset();
  saver_->before_update();  // weights and states change
  // A file does not have the states that had not begun yet.
  for (Optimizer::Slot& slot : parts_.optimizer->slots()) {
    slot.updates = 0;
    if (!slot.is_elsewhere) parts_.optimizer->create_state(slot);
  }
  if (scaler_) scaler_.emplace();
  restore(*entry);
  if (entry->foreign) state_.run_id = before.run_id;
  state_.divergence = behind_rollback(before.divergence, state_.divergence);
  state_.max_steps = plan_.max_steps;
  state_.sessions = before.sessions;
  counted_until_ = now_seconds();
  new_best_ = false;
  files_of_step_ = -1;
  events_.reset();
  open_events();
  progress_.begin("train", plan_.max_steps, state_.step);
}

// ", 2 updates skipped, 1 rollback"; empty where nothing went wrong.
std::string Trainer::faults_text() const {
  std::string text;
  const auto add = [&](int64_t count, const std::string& one, const std::string& many) {
    if (count > 0) text += ", " + std::to_string(count) + " " + (count == 1 ? one : many);
  };
  add(state_.nonfinite_updates, "update of no number left out", "updates of no number left out");
  add(state_.divergence.skipped_updates, "update skipped", "updates skipped");
  add(state_.divergence.rollbacks, "rollback", "rollbacks");
  return text;
}

Trainer::StepReport Trainer::step_within_memory() {
  while (true) {
    std::exception_ptr lack_of_memory;
    try {
      return step();
    } catch (...) {
      lack_of_memory = std::current_exception();
      const bool may_repeat = !is_updating_ && !args_.optimizer_in_backward;
      if (!may_repeat || !is_lack_of_memory(lack_of_memory)) throw;
    }
    if (compute_fewer_at_once()) continue;
    if (split_.rows == 1) std::rethrow_exception(lack_of_memory);
    lack_of_memory = nullptr;
    cut_batch();
  }
}

bool Trainer::compute_fewer_at_once() {
  if (!is_one_threaded()) return false;
  const bool is_parallel =
      has_shards() && std::min(parts_.batches_at_once, split_.accumulation) > 1;
  if (!parts_.world->any(is_parallel)) return false;
  settle_saves();
  shards_.reset();
  parts_.model->store().clear_gradients(/*keep_memory=*/false);
  release_unused_memory(parts_.device);
  const int64_t before = std::min(parts_.batches_at_once, split_.accumulation);
  parts_.batches_at_once = std::max<int64_t>(1, before / 2);
  log::warning("step " + std::to_string(state_.step + 1) +
               ": out of memory; it is done again with " + std::to_string(parts_.batches_at_once) +
               " micro-batches at a time instead of " + std::to_string(before) +
               ", which gives the same bits in more time");
  return true;
}

// Between two tries of one step: the same samples in the same places, fewer of them at a time.
void Trainer::cut_batch() {
  settle_saves();  // what a writer has copied is free then
  parts_.model->store().clear_gradients(/*keep_memory=*/true);
  loader_.reset();
  release_unused_memory(parts_.device);
  split_ = split_.next_smaller().value();
  state_.cut.asked_train = args_.per_device_train_batch_size;
  state_.cut.train = split_.rows;
  make_loader();
  log::warning("step " + std::to_string(state_.step + 1) +
               ": out of memory; it is done again, and training goes on, with " +
               std::to_string(split_.rows) + " x " + std::to_string(split_.accumulation) +
               " samples instead of " + std::to_string(args_.per_device_train_batch_size) +
               " at a time; the effective batch stays " +
               std::to_string(state_.effective_batch_size));
}

// Where memory did not suffice before, on this machine and with these keys, it is not tried again.
void Trainer::take_saved_cut(const RunState& saved, const BatchSplit& asked) {
  const Environment now = current_environment(parts_.device);
  const bool is_same_machine = saved.environment.device == now.device &&
                               saved.environment.torch_version == now.torch_version;
  const MemoryCut known = usable_cut(state_.cut, args_.per_device_train_batch_size,
                                     args_.per_device_eval_batch_size, asked.rank_batch());
  state_.cut = is_same_machine ? known : MemoryCut();
  // A run that goes back keeps what this session has found out.
  if (split_.rows < args_.per_device_train_batch_size) {
    state_.cut.asked_train = args_.per_device_train_batch_size;
    state_.cut.train = split_.rows;
  } else if (state_.cut.train > 0) {
    split_.rows = state_.cut.train;
    log::info("memory did not suffice for " + std::to_string(state_.cut.asked_train) +
              " samples at a time: " + std::to_string(split_.rows) + " from the start");
  }
  if (eval_rows_at_a_time_ < args_.per_device_eval_batch_size) {
    state_.cut.asked_eval = args_.per_device_eval_batch_size;
    state_.cut.eval = eval_rows_at_a_time_;
  } else if (state_.cut.eval > 0) {
    eval_rows_at_a_time_ = state_.cut.eval;
  }
}

std::optional<EvaluationResult> Trainer::evaluate_within_memory(Split split) {
  const int64_t before = eval_rows_at_a_time_;
  std::optional<EvaluationResult> result =
      evaluate(parts_, split, args_, progress_, eval_rows_at_a_time_);
  if (eval_rows_at_a_time_ != before) {
    state_.cut.asked_eval = args_.per_device_eval_batch_size;
    state_.cut.eval = eval_rows_at_a_time_;
  }
  return result;
}

}  // namespace finetune
