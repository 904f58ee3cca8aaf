// SPDX-License-Identifier: MIT
// The trainer's best model: which weights are exported at the end, and what the record says of
// them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "train/best_model.h"
#include "train/trainer.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kKey[] = "load_best_model_at_end: ";

}  // namespace

std::string best_metric_key(const TrainingArgs& args) {
  const std::string& name = *args.metric_for_best_model;
  return name.starts_with("eval_") ? name : "eval_" + name;
}

std::optional<int64_t> Trainer::best_checkpoint_step() const {
  const auto& path = trainer_state_.best_model_checkpoint;
  return path ? checkpoint::parse_checkpoint_name(file_name(*path)) : std::nullopt;
}

std::optional<double> Trainer::logged_best_metric(int64_t step) const {
  const std::optional<Json> metrics = logged_metrics(step);
  if (!metrics || !args_.metric_for_best_model) return std::nullopt;
  const auto found = metrics->find(best_metric_key(args_));
  if (found == metrics->end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

// Of the weights that are left: valid checkpoints of this run and those in memory.
Trainer::ExportedBest Trainer::best_that_is_left() const {
  const bool greater = args_.greater_is_better.value_or(false);
  ExportedBest best;
  const auto consider = [&](int64_t step, const std::optional<std::string>& checkpoint) {
    const std::optional<double> metric = logged_best_metric(step);
    if (!metric) return;
    if (best.metric && !(greater ? *metric > *best.metric : *metric < *best.metric)) return;
    best = {.step = step, .metric = metric, .checkpoint = checkpoint};
  };
  bool last_is_saved = false;
  for (const auto& entry : checkpoint::list_checkpoints(files_, args_.output_dir, true)) {
    if (!entry.whole || entry.foreign || entry.run_id != state_.run_id) continue;
    last_is_saved |= entry.step == state_.step;
    consider(entry.step, entry.path);
  }
  if (!last_is_saved) consider(state_.step, std::nullopt);
  if (!best.metric) best.step = state_.step;
  return best;
}

// Of several processes, rank 0.
void Trainer::lose_best(int64_t step, const std::string& why) {
  const ExportedBest left = best_that_is_left();
  const auto metric_text = [&](const std::optional<double>& metric) {
    return metric ? " (" + best_metric_key(args_) + " " + format_double(*metric) + ")"
                  : std::string();
  };
  std::string advice = "--restart to train again";
  for (const auto& entry : checkpoint::list_checkpoints(files_, args_.output_dir, false)) {
    if (!entry.whole || entry.foreign || entry.step >= step) continue;
    advice = "--resume_from_checkpoint '" + entry.path + "' to train the steps after it again";
  }
  log::error(
      kKey + std::string("the best step is ") + std::to_string(step) +
      metric_text(logged_best_metric(step)) + ", but " + why + "; the exported model is " +
      (left.metric ? "the best one that is left, that of step " : "that of the last step, ") +
      std::to_string(left.step) + metric_text(left.metric) + "; free some space and add " + advice);
  exported_best_ = left;
  best_is_lost_ = true;
  state_.lost_best_step = step;
}

// Sets exported_best_, which stays empty where no evaluated weights are chosen. Of several
// processes, rank 0.
void Trainer::choose_best() {
  settle_saves();  // which of them failed decides
  const std::optional<int64_t> saved = best_checkpoint_step();
  const std::optional<int64_t>& best = trainer_state_.best_global_step;
  const bool has_failed = best && *best == state_.lost_best_step && saved != best;
  if (has_failed && *best == state_.step) {
    log::info(kKey + std::string("the best step is the last one, ") + std::to_string(*best) +
              ": its checkpoint could not be saved, its weights in memory are exported");
    exported_best_ = {.step = *best, .metric = trainer_state_.best_metric, .checkpoint = {}};
  } else if (has_failed) {
    lose_best(*best, "its checkpoint could not be saved");
  } else if (!saved) {
    log::warning(kKey + std::string("no checkpoint was the best one; the last weights stay"));
  } else if (*saved == state_.step) {
    exported_best_ = {.step = *saved,
                      .metric = trainer_state_.best_metric,
                      .checkpoint = trainer_state_.best_model_checkpoint};
  } else {
    const std::string path = checkpoint_path(*saved);
    const checkpoint::CheckpointEntry entry = checkpoint::inspect_checkpoint(files_, path, true);
    if (entry.whole) {
      exported_best_ = {.step = *saved, .metric = logged_best_metric(*saved), .checkpoint = path};
    } else {
      lose_best(*saved,
                "its checkpoint " + path + " is not valid any more (" + entry.problem + ")");
    }
  }
}

void Trainer::load_best_model() {
  if (parts_.world->is_first()) choose_best();
  // Rank 0 alone knows which saves failed.
  const int64_t chosen = exported_best_ ? exported_best_->step : state_.step;
  const auto step = static_cast<int64_t>(broadcast(static_cast<double>(chosen)));
  best_is_lost_ = broadcast(best_is_lost_ ? 1.0 : 0.0) > 0.0;
  if (step == state_.step) return;
  const std::string path = checkpoint_path(step);
  read_weights(path);
  best_is_loaded_ = true;
  exported_step_ = step;
  log::info("the best model is that of step " + std::to_string(step) + ": loaded from " + path);
}

// Only in the finished run's record: until then a checkpoint needs the best metric of all.
void Trainer::describe_exported_best() {
  if (!best_is_lost_) state_.lost_best_step = 0;
  if (!exported_best_) return;
  trainer_state_.best_metric = exported_best_->metric;
  trainer_state_.best_global_step =
      exported_best_->metric ? std::optional<int64_t>(exported_best_->step) : std::nullopt;
  trainer_state_.best_model_checkpoint = exported_best_->checkpoint;
}

void warn_of_lost_best(const RunState& finished) {
  if (finished.lost_best_step == 0) return;
  log::warning(kKey + std::string("the exported model is not the best one: that was step ") +
               std::to_string(finished.lost_best_step) +
               ", whose checkpoint could not be kept; to train again, add --restart or "
               "--resume_from_checkpoint with an earlier checkpoint");
}

}  // namespace finetune
