// SPDX-License-Identifier: MIT
// The trainer's restoring, end and final export.
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/config/dump.h"
#include "finetune/model/model_folder.h"
#include "finetune/report/figure_text.h"
#include "finetune/state/foreign_schedule.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/parameter_files.h"
#include "finetune/state/scaler_file.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/safetensors.h"
#include "train/clock.h"
#include "train/evaluate.h"
#include "train/resume.h"
#include "train/trainer.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using checkpoint::CheckpointFile;

// What a restore made of another format, and whether all its values are still the same.
void say_converted(bool exact, const std::string& line) {
  if (exact) {
    log::info(line);
  } else {
    log::warning("not bit-exact from here: " + line);
  }
}

}  // namespace

void Trainer::start_fresh() {
  const TrainingArgs& args = args_;
  state_.run_id = parts_.world->broadcast(checkpoint::random_identifier());
  state_.config = to_json(args);
  state_.memory = parts_.memory;
  state_.inputs = parts_.inputs;
  state_.identity = parts_.identity;
  state_.environment = environment();
  const int64_t world = parts_.world->size();
  state_.effective_batch_size =
      args.per_device_train_batch_size * args.gradient_accumulation_steps * world;
  prepare(resumed_batch_size(config_, state_, world));
  if (args.full_determinism) {
    state_.shard_rows = rows_at_a_time_;
    state_.shard_threads = is_one_threaded() ? 1 : 0;
  }
  log::info("training " + std::to_string(plan_.max_steps) + " steps of " +
            std::to_string(state_.effective_batch_size) +
            (args.packing ? " packed rows (" : " samples (") +
            std::to_string(args.per_device_train_batch_size) + " x " +
            std::to_string(plan_.accumulation) +
            (world > 1 ? " x " + std::to_string(world) + " processes" : std::string()) + "), " +
            (stream_ ? std::string()
                     : std::to_string(loader_->updates_per_epoch()) + " steps an epoch, ") +
            "on " + describe_device(parts_.device));
}

void Trainer::restore(const checkpoint::CheckpointEntry& from) {
  const std::string state_path = join_path(from.path, checkpoint::kTrainerStateFile);
  trainer_state_ = TrainerState::from_text(files_.read_all(state_path), state_path);
  if (from.foreign) {
    restore_foreign_state(from.path);
  } else {
    restore_state(from.path);
    saved_step_ = state_.step;
  }
  if (from.foreign) {
    read_foreign_weights(from.path);
  } else {
    read_weights(from.path);
  }
  const bool has_optimizer = restore_update(from.path);
  if (!from.foreign) announce_restored(has_optimizer);
  state_.config = to_json(args_);
  state_.memory = parts_.memory;
  state_.inputs = parts_.inputs;
  state_.environment = environment();
  if (args_.resume_from_checkpoint != "auto") state_.origin = args_.resume_from_checkpoint;
  state_.finished = false;
  state_.has_manifest = false;
}

// What the run goes on with, a line each; what differs from the checkpoint was said before.
void Trainer::announce_restored(bool has_optimizer) const {
  const auto restored = [](const std::string& what) { log::info("  restored: " + what); };
  int64_t values = 0;
  for (const NamedTensor& parameter : parts_.model->parameters()) {
    values += parameter.tensor.numel();
  }
  restored("weights (" + std::to_string(values) + " values)");
  if (has_optimizer) {
    restored("optimizer (" + parts_.optimizer->groups().front().options.kind + ", " +
             std::to_string(state_.updates) + " updates)");
  }
  if (scaler_) restored("loss scale (" + format_double(scaler_->scale()) + ")");
  restored("schedule (" + args_.lr_scheduler_type + ", learning rate " +
           figure_text(schedule_->learning_rate(state_.updates)) + ")");
  restored("position (epoch " + std::to_string(state_.position.epoch) +
           (args_.packing ? ", packed row " : ", sample ") +
           std::to_string(state_.position.sample) +
           (stream_ ? std::string() : " of " + std::to_string(loader_->samples_per_epoch())) + ")");
  restored("random numbers (functions of seed " + std::to_string(args_.seed) +
           ", the step and the sample: no generator to restore)");
  restored("log (" + std::to_string(trainer_state_.log_history.size()) + " entries)");
  if (trainer_state_.best_metric) {
    restored("best metric (" + figure_text(*trainer_state_.best_metric) + ")");
  }
  if (args_.early_stopping_patience) {
    restored("early stopping (" + std::to_string(state_.early_stopping_counter) + " of " +
             std::to_string(*args_.early_stopping_patience) + " evaluations without progress)");
  }
  if (state_.evaluation_pending) {
    log::info("  the evaluation that was cut at this step is done again");
  }
}

// Every weight of the model, bit for bit as the folder has it.
void Trainer::read_weights(const std::string& folder) {
  if (saver_) saver_->before_update();
  const RestoredParameters restored = restore_parameters(parts_.model->store(), files_, folder);
  if (!restored.line.empty()) say_converted(restored.exact, restored.line);
}

// What an update needs beside the weights: the optimizer's states and the loss scale. Whether the
// folder has states.
bool Trainer::restore_update(const std::string& folder) {
  const RestoredOptimizer restored = restore_optimizer(*parts_.optimizer, files_, folder);
  if (!restored.found) {
    log::warning("not bit-exact from here: " + folder +
                 " was saved with save_only_model, the optimizer starts fresh");
  }
  for (const std::string& line : restored.lines) say_converted(restored.exact, line);
  const std::string scaler = join_path(folder, checkpoint::kScalerFile);
  if (!scaler_) return restored.found;
  if (files_.exists(scaler)) {
    scaler_from_torch(*scaler_, read_torch_file(files_, scaler), scaler);
  } else {
    log::warning("not bit-exact from here: " + folder + " has no " +
                 std::string(checkpoint::kScalerFile) + ", the loss scale starts at " +
                 format_double(scaler_->scale()));
  }
  return restored.found;
}

// Names as any version of transformers chose them.
void Trainer::read_foreign_weights(const std::string& folder) {
  const LoadReport report = load_folder_weights(*parts_.model, folder);
  if (report.missing.empty()) return;
  throw Error(ErrorKind::kCheckpoint, folder + ": its weights lack " + listed(report.missing) +
                                          "; it is the checkpoint of another kind of model");
}

void Trainer::restore_state(const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  state_ = RunState::parse(files_.read_all(path), path);
  const RunState saved = state_;
  check_identity(saved.identity, parts_.identity, folder);
  take_saved_cut(saved);
  prepare(resumed_batch_size(config_, saved, parts_.world->size()));
  if (stream_) stream_->restore(state_.stream, state_.position.epoch, state_.position.sample);
  schedule_->load_state(state_.schedule);
  state_.stop_early = state_.stop_early && args_.early_stopping_patience &&
                      state_.early_stopping_counter >= *args_.early_stopping_patience;
  log::info("resuming from " + folder + " at step " + std::to_string(state_.step) + " of " +
            std::to_string(plan_.max_steps));
  const Environment now = environment();
  device_is_as_before_ = saved.environment.device == now.device;
  announce_changes(saved, config_, now, plan_.accumulation);
  keep_shards(saved);
}

// transformers keeps no position: it is the step, with the batch that the keys ask for.
void Trainer::restore_foreign_state(const std::string& folder) {
  if (stream_) {
    throw Error(ErrorKind::kConfig,
                config_.where("streaming") + ": streaming: " + folder +
                    " was written by transformers' Trainer, which keeps no place in a stream; "
                    "leave streaming out, or start from its weights with model_name_or_path");
  }
  start_fresh();
  state_.step = state_.updates = state_.window_first_step = trainer_state_.global_step;
  const int64_t per_epoch = loader_->updates_per_epoch();
  state_.position = {.epoch = state_.step / per_epoch,
                     .sample = state_.step % per_epoch * state_.effective_batch_size};
  state_.total_flos = trainer_state_.total_flos;
  state_.tokens_seen = trainer_state_.num_input_tokens_seen;
  if (trainer_state_.early_stopping) {
    state_.early_stopping_counter = trainer_state_.early_stopping->patience_counter;
  }
  const std::string scheduler = join_path(folder, checkpoint::kSchedulerFile);
  if (schedule_->follows_metric() && files_.exists(scheduler)) {
    const std::optional<Json> schedule =
        metric_schedule_from_torch(read_torch_file(files_, scheduler), scheduler);
    if (schedule) schedule_->load_state(*schedule);
  }
  int64_t logged = 0;
  for (const Json& entry : trainer_state_.log_history) {
    if (!entry.contains("loss") || !entry["loss"].is_number()) continue;
    const auto found = entry.find("step");
    const int64_t step =
        found != entry.end() && found->is_number_integer() ? found->get<int64_t>() : logged;
    state_.total_loss += entry["loss"].get<double>() * static_cast<double>(step - logged);
    logged = step;
  }
  log::info("resuming from " + folder + ", which transformers' Trainer wrote, at step " +
            std::to_string(state_.step) + " of " + std::to_string(plan_.max_steps) +
            ": weights, optimizer and log restored; the order of samples and the masks are "
            "finetune's own from here");
}

int Trainer::finish() {
  if (args_.load_best_model_at_end) {
    // What follows may be stopped, and then these weights are no longer there to be saved.
    if (parts_.test_data || (args_.do_eval && parts_.validation_data)) (void)save_if_missing();
    load_best_model();
  }
  std::optional<Json> metrics;
  bool evaluated_now = false;
  if (args_.do_eval && parts_.validation_data) {
    metrics = logged_metrics(exported_step_);
    // Files of predictions must be those of the exported weights.
    files_of_step_ = static_cast<int64_t>(broadcast(static_cast<double>(files_of_step_)));
    const bool has_files = parts_.setup->make_results(Split::kValidation).files != nullptr;
    if (metrics && has_files && files_of_step_ != exported_step_ && !evaluate_weights()) {
      return stop_early();
    }
    if (!metrics) {
      metrics = evaluate_weights();
      if (!metrics) return stop_early();
      evaluated_now = true;
    }
  }
  std::optional<Json> predicted;
  if (parts_.test_data) {
    predicted = predict_test_data();
    if (!predicted) return stop_early();
  }
  state_.seconds += now_seconds() - counted_until_;
  counted_until_ = now_seconds();
  state_.total_loss += state_.window_loss;
  state_.window_loss = 0.0;
  state_.window_first_step = state_.step;
  Json summary = speed_metrics(
      "train", state_.seconds,
      {.samples = state_.step * state_.effective_batch_size, .steps = state_.step, .tokens = {}});
  summary["total_flos"] = state_.total_flos;
  summary["train_loss"] =
      state_.total_loss / std::max<double>(1.0, static_cast<double>(state_.step));
  log(summary);
  if (evaluated_now) log(*metrics);
  summary["epoch"] = epoch();
  if (!stream_ || state_.position.epoch > 0) {  // else a stream's samples were not counted
    summary["train_samples"] = stream_ ? *stream_->samples_per_epoch() : parts_.train_data->size();
  }
  if (parts_.world->is_first()) write_end(summary, metrics, predicted);
  log::info(
      "finished " + std::to_string(state_.step) + " steps in " +
      std::to_string(static_cast<int64_t>(state_.seconds)) + " s of training (" +
      std::to_string(state_.sessions) + (state_.sessions == 1 ? " session" : " sessions") + ")" +
      faults_text() + ", train_loss " + figure_text(summary["train_loss"].get<double>()) +
      (metrics ? ", " + describe_metrics(*metrics) : "") + "; the model is in " + args_.output_dir);
  if (parts_.session && parts_.session->cost) log::info(*cost_text());
  const bool has_no_save = broadcast(failed_saves_ > 0 && saves_ == 0 ? 1.0 : 0.0) > 0.0;
  if (has_no_save) {
    log::warning("no checkpoint could be written: " + std::to_string(failed_saves_) +
                 " saves failed");
    return kExitCheckpointsFailed;
  }
  return best_is_lost_ ? kExitCheckpointsFailed : kExitFinished;
}

void Trainer::write_end(const Json& summary, const std::optional<Json>& metrics,
                        const std::optional<Json>& predicted) {
  if (predicted) write_results(files_, args_.output_dir, "predict", *predicted);
  settle_saves();
  // What a failed save or deletion left: no later start of a finished run has to.
  checkpoint::sweep_stale(files_, args_.output_dir,
                          [](const std::string& line) { log::warning(line); });
  export_model(summary, metrics);
}

std::optional<Json> Trainer::predict_test_data() {
  std::optional<EvaluationResult> result = evaluate_within_memory(Split::kTest);
  if (!result) return std::nullopt;
  if (result->files && parts_.world->is_first()) result->files->write(files_, args_.output_dir);
  result->metrics["predict_samples"] = parts_.test_data->size();
  return result->metrics;
}

// The metrics of the weights after `step`, where the log has them: masks in evaluation depend on
// the sample alone, so evaluating again would give the same numbers.
std::optional<Json> Trainer::logged_metrics(int64_t step) const {
  const auto& history = trainer_state_.log_history;
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry) {
    const auto logged = entry->find("step");
    if (logged == entry->end() || *logged != step || !entry->contains("eval_loss")) continue;
    Json metrics = *entry;
    metrics.erase("step");
    metrics.erase("epoch");
    return metrics;
  }
  return std::nullopt;
}

// finetune_state.json, which says that the run is finished, is written last.
void Trainer::export_model(const Json& summary, const std::optional<Json>& metrics) {
  checkpoint::ModelExport model(files_, args_.output_dir);
  for (const CheckpointFile& file : model_files(exported_tensors(parts_.model->store()))) {
    model.write(file);
  }
  write_results(files_, args_.output_dir, "train", summary);
  if (metrics) {
    Json results = *metrics;
    results["epoch"] = epoch();
    results["eval_samples"] = parts_.validation_data->size();
    if (args_.task == "mlm" && results["eval_loss"].is_number()) {
      results["perplexity"] = std::exp(results["eval_loss"].get<double>());
    }
    write_results(files_, args_.output_dir, "eval", results);
  }
  const std::string different = storage_.difference_to_finished(model.manifest());
  if (!different.empty()) {
    throw Error(ErrorKind::kCheckpoint,
                "the rebuilt '" + join_path(args_.output_dir, different) +
                    "' is not the one that the finished run had (another library version, machine "
                    "or best checkpoint); put a good copy of it back, or delete " +
                    join_path(args_.output_dir, checkpoint::kManifestFile) +
                    " and run the command again to accept the rebuilt model");
  }
  model.add_results();
  state_.finished = true;
  state_.has_manifest = true;
  describe_exported_best();
  update_trainer_state();
  state_.schedule = schedule_->state();
  model.write(checkpoint::text_file(checkpoint::kTrainerStateFile, trainer_state_.to_text()));
  model.commit(state_.run_id, state_.step, state_.to_text());
}

}  // namespace finetune
