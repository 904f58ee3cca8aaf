// SPDX-License-Identifier: MIT
#include "train/save/best_model.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "train/save/agreement.h"
#include "train/session/run_log.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kKey[] = "load_best_model_at_end: ";

}  // namespace

std::string best_metric_key(const TrainingArgs& args) {
  const std::string& name = *args.metric_for_best_model;
  return name.starts_with("eval_") ? name : "eval_" + name;
}

std::optional<double> BestModel::logged_metric(int64_t step) const {
  const std::optional<Json> metrics = logged_metrics(run_.trainer_state, step);
  if (!metrics || !run_.args.metric_for_best_model) return std::nullopt;
  const auto found = metrics->find(best_metric_key(run_.args));
  if (found == metrics->end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

// Returns the best of the remaining weights: valid checkpoints of this run and those in memory.
BestModel::Exported BestModel::best_left() const {
  const bool greater = run_.args.greater_is_better.value_or(false);
  Exported best;
  const auto consider = [&](int64_t step, const std::optional<std::string>& checkpoint) {
    const std::optional<double> metric = logged_metric(step);
    if (!metric) return;
    if (best.metric && !(greater ? *metric > *best.metric : *metric < *best.metric)) return;
    best = {.step = step, .metric = metric, .checkpoint = checkpoint};
  };
  bool last_is_saved = false;
  for (const auto& entry : checkpoint::list_checkpoints(run_.files, run_.args.output_dir, true)) {
    if (!entry.whole || entry.foreign || entry.run_id != run_.state.run_id) continue;
    last_is_saved |= entry.step == run_.state.step;
    consider(entry.step, entry.path);
  }
  if (!last_is_saved) consider(run_.state.step, std::nullopt);
  if (!best.metric) best.step = run_.state.step;
  return best;
}

// Called on rank 0.
void BestModel::lose(int64_t step, const std::string& why) {
  const Exported left = best_left();
  const auto metric_text = [&](const std::optional<double>& metric) {
    return metric ? " (" + best_metric_key(run_.args) + " " + format_double(*metric) + ")"
                  : std::string();
  };
  std::string advice = "--restart to train again";
  for (const auto& entry : checkpoint::list_checkpoints(run_.files, run_.args.output_dir, false)) {
    if (!entry.whole || entry.foreign || entry.step >= step) continue;
    advice = "--resume_from_checkpoint '" + entry.path + "' to train the steps after it again";
  }
  log::error(
      kKey + std::string("the best step is ") + std::to_string(step) +
      metric_text(logged_metric(step)) + ", but " + why + "; the exported model is " +
      (left.metric ? "the best one that is left, that of step " : "that of the last step, ") +
      std::to_string(left.step) + metric_text(left.metric) + "; free some space and add " + advice);
  exported_ = left;
  is_lost_ = true;
  run_.state.lost_best_step = step;
}

// Sets exported_, which stays empty if no evaluated weights are chosen. Called on rank 0.
void BestModel::choose() {
  saving_.settle();  // a failed save changes the choice
  const std::optional<int64_t> saved = saving_.best_checkpoint_step();
  const std::optional<int64_t>& best = run_.trainer_state.best_global_step;
  const bool has_failed = best && *best == run_.state.lost_best_step && saved != best;
  if (has_failed && *best == run_.state.step) {
    log::info(kKey + std::string("the best step is the last one, ") + std::to_string(*best) +
              ": its checkpoint could not be saved, its weights in memory are exported");
    exported_ = {.step = *best, .metric = run_.trainer_state.best_metric, .checkpoint = {}};
  } else if (has_failed) {
    lose(*best, "its checkpoint could not be saved");
  } else if (!saved) {
    log::warning(kKey + std::string("no checkpoint was the best one; the last weights stay"));
  } else if (*saved == run_.state.step) {
    exported_ = {.step = *saved,
                 .metric = run_.trainer_state.best_metric,
                 .checkpoint = run_.trainer_state.best_model_checkpoint};
  } else {
    const std::string path = run_.checkpoint_path(*saved);
    const checkpoint::CheckpointEntry entry =
        checkpoint::inspect_checkpoint(run_.files, path, true);
    if (entry.whole) {
      exported_ = {.step = *saved, .metric = logged_metric(*saved), .checkpoint = path};
    } else {
      lose(*saved, "its checkpoint " + path + " is not valid any more (" + entry.problem + ")");
    }
  }
}

void BestModel::load() {
  if (run_.world().is_first()) choose();
  // Only rank 0 knows which saves failed.
  const int64_t chosen = exported_ ? exported_->step : run_.state.step;
  const auto step = static_cast<int64_t>(broadcast(run_.world(), static_cast<double>(chosen)));
  is_lost_ = broadcast(run_.world(), is_lost_ ? 1.0 : 0.0) > 0.0;
  if (step == run_.state.step) return;
  const std::string path = run_.checkpoint_path(step);
  saving_.before_update();  // the weights are about to change
  weights_->load({.files = run_.files, .path = path});
  run_.loaded_best_step = step;
  log::info("the best model is that of step " + std::to_string(step) + ": loaded from " + path);
}

// Only called for the finished run: until then checkpoints need the best metric of all.
void BestModel::describe() const {
  if (!is_lost_) run_.state.lost_best_step = 0;
  if (!exported_) return;
  run_.trainer_state.best_metric = exported_->metric;
  run_.trainer_state.best_global_step =
      exported_->metric ? std::optional<int64_t>(exported_->step) : std::nullopt;
  run_.trainer_state.best_model_checkpoint = exported_->checkpoint;
}

void warn_of_lost_best(const RunState& finished) {
  if (finished.lost_best_step == 0) return;
  log::warning(kKey + std::string("the exported model is not the best one: that was step ") +
               std::to_string(finished.lost_best_step) +
               ", whose checkpoint could not be kept; to train again, add --restart or "
               "--resume_from_checkpoint with an earlier checkpoint");
}

}  // namespace finetune
