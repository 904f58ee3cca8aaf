// SPDX-License-Identifier: MIT
// The trainer's saving: what a checkpoint holds, when the next one is due, what became of the last.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/memory_status.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/techniques.h"
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
#include "train/trainer.h"

namespace finetune {
namespace {

using checkpoint::CheckpointFile;

// How long a save that the keys ask for waits for the one before it.
constexpr double kMostWaitSeconds = 30;

// A quick disk: a state that it takes in less than a step is never copied.
constexpr double kDiskBytesPerSecond = 1e9;

constexpr uint64_t kAlignmentBytes = uint64_t{1} << 20;  // of copies, in all

// Of these the newest one or two are there; more where deleting failed.
constexpr size_t kMostAutomatic = 16;

CheckpointFile torch_file(std::string name, TorchValue value) {
  return {.name = std::move(name), .write = [value = std::move(value)](WritableFile& file) {
            write_torch_file(file, value);
          }};
}

}  // namespace

std::string Trainer::checkpoint_path(int64_t step) const {
  return join_path(args_.output_dir, checkpoint::checkpoint_name(step));
}

void Trainer::update_trainer_state() {
  keep_session();
  trainer_state_.epoch = epoch();
  trainer_state_.global_step = state_.step;
  trainer_state_.max_steps = plan_.max_steps;
  trainer_state_.logging_steps = plan_.logging_steps;
  trainer_state_.eval_steps = plan_.eval_steps > 0 ? plan_.eval_steps : plan_.logging_steps;
  trainer_state_.save_steps = plan_.save_steps;
  if (stream_) state_.stream = stream_->state(state_.position.epoch, state_.position.sample);
  trainer_state_.train_batch_size = split_.rows;
  trainer_state_.num_train_epochs = plan_.num_train_epochs;
  trainer_state_.num_input_tokens_seen = state_.tokens_seen;
  trainer_state_.total_flos = state_.total_flos;
  trainer_state_.control.should_training_stop = is_last_step() || state_.stop_early;
  if (args_.early_stopping_patience) {
    trainer_state_.early_stopping =
        EarlyStoppingState{.patience = *args_.early_stopping_patience,
                           .threshold = args_.early_stopping_threshold,
                           .patience_counter = state_.early_stopping_counter};
  }
}

// config.json, weights and tokenizer: what from_pretrained() loads.
std::vector<CheckpointFile> Trainer::model_files(const LazyTensors& tensors) const {
  std::vector<CheckpointFile> list;
  const bool is_bfloat16 = !tensors.empty() && tensors.front().type == at::kBFloat16;
  list.push_back(checkpoint::text_file(
      checkpoint::kConfigFile, model_config_json(parts_.model_config, parts_.model->architecture(),
                                                 is_bfloat16 ? "bfloat16" : "float32")));
  const std::vector<ModelShard> shards = plan_shards(tensors);
  for (const ModelShard& shard : shards) {
    list.push_back(
        {shard.file_name, [shard](WritableFile& file) { write_safetensors(file, shard.tensors); }});
  }
  if (shards.size() > 1) {
    list.push_back(checkpoint::text_file(kModelIndexFile, make_shard_index(shards)));
  }
  for (const auto& [name, content] : parts_.tokenizer->files()) {
    list.push_back(checkpoint::text_file(name, content));
  }
  const DataRecord record = parts_.setup->record();
  if (!record.empty()) list.push_back(checkpoint::text_file(kDataRecordFile, record.to_text()));
  return list;
}

std::vector<CheckpointFile> Trainer::state_files(bool with_optimizer, Snapshot* snapshot) {
  std::vector<CheckpointFile> list;
  if (with_optimizer) {
    const OptimizerRates rates{.learning_rate = schedule_->learning_rate(state_.updates),
                               .initial_learning_rate = args_.learning_rate};
    for (CheckpointFile& file :
         optimizer_checkpoint_files(*parts_.optimizer, rates, snapshot, state_gather_.get())) {
      list.push_back(std::move(file));
    }
    if (scaler_) {
      list.push_back(torch_file(checkpoint::kScalerFile, scaler_to_torch(*scaler_)));
    }
    list.push_back(torch_file(
        checkpoint::kSchedulerFile,
        schedule_->follows_metric()
            ? metric_schedule_to_torch(schedule_->state(), 2)
            : scheduler_to_torch(state_.updates, args_.learning_rate, rates.learning_rate)));
  }
  update_trainer_state();
  state_.schedule = schedule_->state();
  list.push_back(checkpoint::text_file(checkpoint::kTrainerStateFile, trainer_state_.to_text()));
  list.push_back(checkpoint::text_file(checkpoint::kFinetuneStateFile, state_.to_text()));
  return list;
}

// Once a session, and only where it matters: who goes on with transformers would lose the states.
void Trainer::announce_files() {
  if (files_are_announced_ || transformers_reads_states(*parts_.optimizer)) return;
  files_are_announced_ = true;
  log::info("the optimizer's states go to " + std::string(checkpoint::kOptimizerTensorsFile) +
            ", which transformers' Trainer does not read: it would start a fresh optimizer");
}

void Trainer::prepare_saving() {
  check_space();
  const std::optional<int64_t> budget =
      parts_.device.is_cpu() ? memory_budget_of(args_) : std::nullopt;
  saver_ = std::make_unique<CheckpointSaver>(
      files_, CheckpointSaver::Options{
                  .output_dir = args_.output_dir,
                  .in_background = args_.async_save || state_gather_,
                  .has_room =
                      [budget](uint64_t bytes) {
                        const auto wanted = static_cast<int64_t>(bytes + bytes / 5);
                        const int64_t resident = resident_memory();
                        if (budget) return resident + static_cast<int64_t>(bytes) <= *budget;
                        const int64_t most = attainable_memory();
                        return most == 0 || most - resident >= wanted;
                      },
                  .before_commit = [this] { storage_.check_before_commit(); },
                  .on_commit =
                      [this](const std::string& path, const checkpoint::RotationPolicy& rotation) {
                        storage_.committed(path, rotation);
                      }});
  save_clock_.emplace(
      SaveClock::Options{
          .minutes = args_.save_strategy == "no" ? std::optional<double>(0.0) : args_.save_minutes,
          .checkpoint_bytes = checkpoint_bytes(/*with_optimizer=*/true)},
      now_seconds());
}

bool Trainer::automatic_save_is_due() const {
  return save_clock_->is_due(now_seconds()) && !saver_->is_busy();
}

// Scheduled saves, then those that the clock asks for; the latter never wait for the disk.
void Trainer::save_if_due() {
  if (parts_.world->is_first()) {
    collect_save();
    reserve_copies();
    if (save_is_due() || save_is_owed_) {
      save(true);
    } else if (automatic_save_is_due()) {
      save(false);
    }
  }
  serve_save();
}

// Where updates come faster than a checkpoint is written, every save will need a copy.
void Trainer::reserve_copies() {
  if (copies_are_reserved_ || !args_.async_save || state_gather_ || args_.save_strategy == "no")
    return;
  constexpr int64_t kFirstSteps = 3;  // slower than the others
  if (++session_steps_ < kFirstSteps) return;
  copies_are_reserved_ = true;
  const double step = (now_seconds() - session_start_) / kFirstSteps;
  const uint64_t bytes = checkpoint_bytes(/*with_optimizer=*/true) + kAlignmentBytes;
  if (step < static_cast<double>(bytes) / kDiskBytesPerSecond) saver_->reserve(bytes);
}

// What became of the last save, where it has ended.
void Trainer::collect_save() {
  const std::optional<SaveOutcome> outcome = saver_->take_outcome();
  if (!outcome) return;
  saving_step_ = -1;
  log::debug("the save of step " + std::to_string(outcome->step) + " kept training waiting for " +
             figure_text(outcome->stall_seconds) + " s");
  if (outcome->committed) {
    ++saves_;
    saved_step_ = outcome->step;
    if (parts_.session) parts_.session->clock.note_save(outcome->seconds);
    // A processor that writes does not train.
    const double taken =
        parts_.device.is_cpu() ? outcome->processor_seconds / std::max(1, num_threads()) : 0.0;
    save_clock_->cost(outcome->stall_seconds + taken, outcome->seconds);
  } else {
    if (outcome->nonfinite) {
      nonfinite_save_ = outcome;
    } else {
      ++failed_saves_;
    }
    if (trainer_state_.best_model_checkpoint == checkpoint_path(outcome->step)) {
      trainer_state_.best_model_checkpoint = best_before_save_;
      state_.lost_best_step = outcome->step;
    }
    state_.automatic_steps = automatic_before_save_;
  }
}

void Trainer::settle_saves() {
  saver_->wait();
  collect_save();
}

// The disk is slower than the keys ask for: the newest state is saved as soon as it is free.
bool Trainer::wait_for_saver() {
  const bool is_best = trainer_state_.best_global_step == state_.step;
  const std::optional<double> limit =
      is_best ? std::nullopt : std::optional<double>(kMostWaitSeconds);
  if (!saver_->wait(limit)) {
    if (!save_is_owed_) {
      log::warning("step " + std::to_string(state_.step) +
                   " is not saved yet: the save before it is still being written; the newest "
                   "state is saved as soon as that is done");
    }
    save_is_owed_ = true;
    return false;
  }
  collect_save();
  return true;
}

// A save that fails never ends the run: the checkpoints before it stay, the next one tries again.
void Trainer::save(bool on_schedule) {
  if ((saved_step_ == state_.step || saving_step_ == state_.step) && !new_best_) return;
  if (best_is_loaded_) return;  // the weights are no longer those of this step
  if (!wait_for_saver()) return;
  save_is_owed_ = false;
  const double start = now_seconds();
  save_clock_->began(start);
  state_.seconds += start - counted_until_;
  counted_until_ = start;
  best_before_save_ = trainer_state_.best_model_checkpoint;
  automatic_before_save_ = state_.automatic_steps;
  std::erase(state_.automatic_steps, state_.step);
  if (!on_schedule) state_.automatic_steps.push_back(state_.step);
  if (state_.automatic_steps.size() > kMostAutomatic) {
    state_.automatic_steps.erase(state_.automatic_steps.begin());
  }
  // Only where the keys ask for a save: an interruption must not change which model is exported.
  const bool is_asked_for = on_schedule || state_.lost_best_step == state_.step;
  if (is_asked_for && trainer_state_.best_global_step == state_.step) {
    trainer_state_.best_model_checkpoint = checkpoint_path(state_.step);
  }
  const bool with_optimizer = !args_.save_only_model || !on_schedule;
  if (with_optimizer) announce_files();
  saving_step_ = state_.step;
  saver_->start(save_request(with_optimizer));
  if (!args_.async_save && !state_gather_) collect_save();
}

SaveRequest Trainer::save_request(bool with_optimizer) {
  SaveRequest request{.identity = {.step = state_.step, .run_id = state_.run_id}};
  const ParameterStore& store = parts_.model->store();
  // What corrects weights of 24 bits is a file of the optimizer's; without it they are joined while
  // they are written.
  const bool joins = !with_optimizer && store.weight_format() == WeightFormat::kSplit;
  if (!joins) request.snapshot = std::make_shared<Snapshot>();
  const LazyTensors weights =
      joins ? exported_tensors(store) : checkpoint_tensors(store, request.snapshot.get());
  request.contents = model_files(weights);
  for (CheckpointFile& file : state_files(with_optimizer, request.snapshot.get())) {
    request.contents.push_back(std::move(file));
  }
  request.bytes = with_optimizer ? optimizer_file_bytes(*parts_.optimizer) : 0;
  for (const LazyTensor& tensor : weights) request.bytes += tensor.bytes();
  request.rotation = {.save_total_limit = args_.save_total_limit,
                      .best_step = best_checkpoint_step(),
                      .automatic_steps = state_.automatic_steps};
  return request;
}

bool Trainer::save_if_missing() {
  if (parts_.world->is_first()) {
    settle_saves();
    if (saved_step_ != state_.step) save(false);
  }
  serve_save();
  if (!parts_.world->is_first()) return broadcast(0.0) > 0.0;
  settle_saves();
  return broadcast(saved_step_ == state_.step ? 1.0 : 0.0) > 0.0;
}

}  // namespace finetune
