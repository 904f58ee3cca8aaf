// SPDX-License-Identifier: MIT
#include "train/loop/recovery.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/report/figure_text.h"
#include "train/session/shared_start.h"

namespace finetune {
namespace {

std::string samples_text(const LeftOut& out) {
  return "samples " + std::to_string(out.position.sample) + " to " +
         std::to_string(out.position.sample + out.samples - 1) + " of epoch " +
         std::to_string(out.position.epoch);
}

}  // namespace

std::string Recovery::try_text() const {
  return "try " + std::to_string(run_.state.divergence.tries) + " of " +
         std::to_string(run_.divergence_options().max_tries);
}

std::optional<std::string> Recovery::after_fault(const StepReport& report) {
  DivergenceState& state = run_.state.divergence;
  const int64_t step = run_.state.step + 1;
  const std::string nonfinite = run_.nonfinite_state();
  const Damage damage{.is_half_applied = report.is_half_applied, .is_in_state = !nonfinite.empty()};
  count_fault(state, step);
  const Remedy remedy = remedy_for(run_.divergence_options(), state, damage);
  if (remedy == Remedy::kStop) stop_diverged(report, damage, nonfinite);
  const LeftOut update = run_.samples_of_update(run_.state.position);
  const std::string fault = "step " + std::to_string(step) + ": " + *report.fault;
  if (remedy == Remedy::kSkip) {
    log::warning(fault + "; the update is skipped (" + samples_text(update) + ", " + try_text() +
                 ")");
    return std::nullopt;
  }
  if (damage.is_in_state) {
    // An earlier update caused it; the steps are watched when the run repeats them.
    state.watched_until = run_.state.step;
    return fault + ", and " + nonfinite + " contains NaN or Inf";
  }
  state.left_out.push_back(update);
  return fault + "; " + samples_text(update) + " are left out";
}

std::optional<std::string> Recovery::after_step(const StepReport& report,
                                                const Position& position) {
  DivergenceState& state = run_.state.divergence;
  const int64_t step = run_.state.step;
  const bool watched = step <= state.watched_until;
  const bool stops = run_.world().size() > 1 ? report.stop_came : interrupt::is_requested();
  if (!watched && !run_.evaluation_is_due() && !run_.is_last_step() && !stops) return std::nullopt;
  const std::string nonfinite = run_.nonfinite_state();
  if (nonfinite.empty()) return std::nullopt;
  count_fault(state, step);
  const std::string reason =
      "step " + std::to_string(step) + ": " + nonfinite + " contains NaN or Inf after the update";
  if (remedy_for(run_.divergence_options(), state, {.is_in_state = true}) == Remedy::kStop) {
    stop_poisoned(reason);
  }
  if (!watched) {
    state.watched_until = step;
    return reason + ", of this or an earlier step";
  }
  const LeftOut update = run_.samples_of_update(position);
  state.left_out.push_back(update);
  return reason + "; " + samples_text(update) + " are left out";
}

std::optional<std::string> Recovery::after_save() {
  const std::optional<SaveOutcome>& save = saving_.nonfinite();
  if (!save) return std::nullopt;
  DivergenceState& state = run_.state.divergence;
  const std::string reason = "step " + std::to_string(save->step) +
                             ", which was to be saved: " + *save->nonfinite +
                             "; this or an earlier update made it";
  count_fault(state, save->step);
  if (remedy_for(run_.divergence_options(), state, {.is_in_state = true}) == Remedy::kStop) {
    stop_poisoned(reason);
  }
  // The step of the save, not the current one: which updates are watched must not depend on the
  // speed of the disk.
  state.watched_until = std::max(state.watched_until, save->step);
  return reason;
}

void Recovery::stop_poisoned(const std::string& reason) const {
  run_.progress.end();
  throw Error(ErrorKind::kData,
              reason +
                  "; nothing is saved and the run resumes from the previous checkpoint; lower "
                  "learning_rate (now " +
                  figure_text(run_.state.last_learning_rate) +
                  ") or max_grad_norm and run the same command again");
}

// If the update was not applied, weights and optimizer are those of the step before.
void Recovery::stop_diverged(const StepReport& report, const Damage& damage,
                             const std::string& nonfinite) {
  run_.progress.end();
  RunState& state = run_.state;
  if (!std::isfinite(report.loss + report.grad_norm)) ++state.nonfinite_updates;
  const int64_t tries = state.divergence.tries;
  state.divergence.tries = 0;              // a new session starts counting again
  if (run_.scaler) run_.scaler.emplace();  // no loss scale helped: start with a new one
  std::string outcome = "; nothing is saved and the run resumes from the previous checkpoint";
  if (damage.is_half_applied) {
    outcome =
        "; some weights were updated in the backward pass already, so nothing is saved and "
        "the run resumes from the previous checkpoint";
  } else if (!damage.is_in_state) {
    const bool saved = saving_.save_if_missing();
    outcome = "; the update was not applied and the state of step " + std::to_string(state.step) +
              (saved ? " is saved" : " is kept");
  }
  if (damage.is_in_state) {
    outcome = ", and " + nonfinite + " contains NaN or Inf" + outcome;
  }
  if (tries > 1) outcome = " (" + std::to_string(tries) + " times without progress)" + outcome;
  throw Error(ErrorKind::kData,
              "step " + std::to_string(state.step + 1) + ": " + *report.fault + outcome +
                  "; lower learning_rate (now " + figure_text(report.learning_rate) +
                  (run_.args.max_grad_norm > 0 ? ") or max_grad_norm"
                                               : ") or set max_grad_norm (now 0: no clipping)") +
                  (tries > 1 && !run_.args.loss_spike_factor
                       ? ", or set loss_spike_factor, which finds the update that led there,"
                       : "") +
                  " and run the same command again");
}

checkpoint::CheckpointEntry Recovery::choose_checkpoint(const std::string& reason) const {
  const auto entry = share_checkpoint(run_.world(), [&] {
    return checkpoint::find_newest_good(run_.files, run_.args.output_dir,
                                        [](const std::string& line) { log::warning(line); });
  });
  if (!entry) {
    throw Error(ErrorKind::kData,
                reason +
                    "; divergence_policy: rollback has no checkpoint to roll back to yet; lower "
                    "learning_rate (now " +
                    figure_text(run_.state.last_learning_rate) +
                    ") or save_steps and run the same command again");
  }
  log::warning(reason + "; rolling back to " + entry->path + " (" + try_text() + ")");
  return *entry;
}

std::string Recovery::faults_text() const {
  std::string text;
  const auto add = [&](int64_t count, const std::string& one, const std::string& many) {
    if (count > 0) text += ", " + std::to_string(count) + " " + (count == 1 ? one : many);
  };
  const RunState& state = run_.state;
  add(state.nonfinite_updates, "non-finite update skipped", "non-finite updates skipped");
  add(state.divergence.skipped_updates, "update skipped", "updates skipped");
  add(state.divergence.rollbacks, "rollback", "rollbacks");
  return text;
}

}  // namespace finetune
