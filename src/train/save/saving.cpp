// SPDX-License-Identifier: MIT
#include "train/save/saving.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/memory_status.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/techniques.h"
#include "finetune/report/figure_text.h"
#include "finetune/tensor/device.h"
#include "train/save/agreement.h"
#include "train/session/shared_start.h"

namespace finetune {
namespace {

// How long a scheduled save waits for the previous one.
constexpr double kMostWaitSeconds = 30;

// Speed of a fast disk: a state that it writes in less than a step is never copied.
constexpr double kDiskBytesPerSecond = 1e9;

constexpr uint64_t kAlignmentBytes = uint64_t{1} << 20;  // of copies, in total

// Usually only the newest one or two exist; more if deleting them failed.
constexpr size_t kMostAutomatic = 16;

constexpr uint64_t kLogEntryBytes = 250;      // per entry of trainer_state.json, indented
constexpr uint64_t kResultBytes = 16 * 1024;  // config.json, *_results.json, finetune_state.json

// Returns whether memory has room for a copy of this many bytes during training.
std::function<bool(uint64_t)> room_within(std::optional<int64_t> budget) {
  return [budget](uint64_t bytes) {
    const auto wanted = static_cast<int64_t>(bytes + bytes / 5);
    const int64_t resident = resident_memory();
    if (budget) return resident + kMappedCode + static_cast<int64_t>(bytes) <= *budget;
    const int64_t most = attainable_memory();
    return most == 0 || most - resident >= wanted;
  };
}

}  // namespace

Saving::Saving(TrainingRun& run, SessionWatch& watch, CheckpointParts contents,
               CheckpointParts records)
    : run_(run), watch_(watch), contents_(std::move(contents)), records_(std::move(records)) {
  const std::optional<int64_t> budget =
      run.parts.device.is_cpu() ? memory_budget_of(run.args) : std::nullopt;
  saver_ = std::make_unique<CheckpointSaver>(
      run.files,
      CheckpointSaver::Options{
          .output_dir = run.args.output_dir,
          .in_background = run.args.async_save || run.divided.gather,
          .has_room = room_within(budget),
          .copies_on_device = !run.parts.device.is_cpu() && !memory_budget_of(run.args),
          .before_commit = [&storage = run.storage] { storage.folder().check_before_commit(); },
          .on_commit =
              [&storage = run.storage](const std::string& path,
                                       const checkpoint::RotationPolicy& rotation) {
                storage.mirrors().committed(path, rotation);
              }});
}

void Saving::prepare() {
  check_space();
  const TrainingArgs& args = run_.args;
  clock_.emplace(
      SaveClock::Options{
          .minutes = args.save_strategy == "no" ? std::optional<double>(0.0) : args.save_minutes,
          .checkpoint_bytes = contents_.bytes(SaveKind::kCheckpoint)},
      now_seconds());
  watch_.expect_times(contents_.bytes(SaveKind::kCheckpoint));
}

void Saving::restarted(bool is_saved) {
  saved_step_ = is_saved ? run_.state.step : -1;
  is_owed_ = false;
  nonfinite_.reset();
}

void Saving::save_if_due() {
  if (run_.world().is_first()) {
    collect();
    reserve_copies();
    if (run_.save_is_due() || is_owed_) {
      save(true);
    } else if (clock_->is_due(now_seconds()) && !saver_->is_busy()) {
      save(false);
    }
  }
  serve();
}

bool Saving::save_if_missing() {
  World& world = run_.world();
  if (world.is_first()) {
    settle();
    if (saved_step_ != run_.state.step) save(false);
  }
  serve();
  if (!world.is_first()) return broadcast(world, 0.0) > 0.0;
  settle();
  return broadcast(world, saved_step_ == run_.state.step ? 1.0 : 0.0) > 0.0;
}

void Saving::settle() {
  saver_->wait();
  collect();
}

// Sends the states of the other ranks to rank 0's save until it ends.
void Saving::serve() {
  if (!run_.divided.gather) return;
  const double start = now_seconds();
  run_.divided.gather->serve([this] { return !saver_->is_busy(); });
  if (!run_.world().is_first()) return;
  saver_->add_stall(now_seconds() - start);
  collect();
}

// Reserves memory for copies if updates are faster than writing a checkpoint, because every save
// then needs a copy.
void Saving::reserve_copies() {
  if (copies_are_reserved_ || !run_.args.async_save || run_.divided.gather ||
      run_.args.save_strategy == "no") {
    return;
  }
  constexpr int64_t kFirstSteps = 3;  // slower than the others
  if (++session_steps_ < kFirstSteps) return;
  copies_are_reserved_ = true;
  const double step = watch_.seconds() / kFirstSteps;
  const uint64_t bytes = contents_.bytes(SaveKind::kCheckpoint) + kAlignmentBytes;
  if (step < static_cast<double>(bytes) / kDiskBytesPerSecond) saver_->reserve(bytes);
}

void Saving::save(bool on_schedule) {
  RunState& state = run_.state;
  TrainerState& record = run_.trainer_state;
  if ((saved_step_ == state.step || saving_step_ == state.step) && !run_.has_new_best) return;
  if (run_.loaded_best_step) return;  // the weights are no longer those of this step
  if (!wait_for_saver()) return;
  is_owed_ = false;
  clock_->began(now_seconds());
  watch_.count_seconds();
  best_before_ = record.best_model_checkpoint;
  automatic_before_ = state.automatic_steps;
  std::erase(state.automatic_steps, state.step);
  if (!on_schedule) state.automatic_steps.push_back(state.step);
  if (state.automatic_steps.size() > kMostAutomatic) {
    state.automatic_steps.erase(state.automatic_steps.begin());
  }
  // Only for saves that the keys ask for: an interruption must not change which model is exported.
  const bool is_asked_for = on_schedule || state.lost_best_step == state.step;
  if (is_asked_for && record.best_global_step == state.step) {
    record.best_model_checkpoint = run_.checkpoint_path(state.step);
  }
  saving_step_ = state.step;
  const bool with_optimizer = !run_.args.save_only_model || !on_schedule;
  saver_->start(request(with_optimizer ? SaveKind::kCheckpoint : SaveKind::kWithoutOptimizer));
  if (!run_.args.async_save && !run_.divided.gather) collect();
}

SaveRequest Saving::request(SaveKind kind) {
  SaveRequest request{.identity = {.step = run_.state.step, .run_id = run_.state.run_id}};
  // Without the optimizer's file, split weights are joined while they are written.
  const bool joins = kind == SaveKind::kWithoutOptimizer && run_.store().has_corrections();
  if (!joins) request.snapshot = std::make_shared<Snapshot>();
  const SaveScope scope{.kind = kind, .snapshot = request.snapshot.get()};
  update_records();
  request.contents = contents_.save(scope);
  for (checkpoint::CheckpointFile& file : records_.save(scope)) {
    request.contents.push_back(std::move(file));
  }
  request.bytes = contents_.bytes(kind);
  request.rotation = rotation_policy();
  return request;
}

checkpoint::RotationPolicy Saving::rotation_policy() const {
  return {.save_total_limit = run_.args.save_total_limit,
          .best_step = best_checkpoint_step(),
          .automatic_steps = run_.state.automatic_steps};
}

void Saving::remove_automatic() const {
  (void)checkpoint::remove_automatic(run_.files, run_.args.output_dir, run_.state.run_id,
                                     rotation_policy(),
                                     [](const std::string& line) { log::warning(line); });
}

// If the disk is slower than the keys ask for, the newest state is saved as soon as the disk is
// free.
bool Saving::wait_for_saver() {
  const int64_t step = run_.state.step;
  const bool is_best = run_.trainer_state.best_global_step == step;
  const std::optional<double> limit =
      is_best ? std::nullopt : std::optional<double>(kMostWaitSeconds);
  if (!saver_->wait(limit)) {
    if (!is_owed_) {
      log::warning("step " + std::to_string(step) +
                   " is not saved yet: the save before it is still being written; the newest "
                   "state is saved as soon as that is done");
    }
    is_owed_ = true;
    return false;
  }
  collect();
  return true;
}

// Handles the outcome of the last save, if it has ended.
void Saving::collect() {
  const std::optional<SaveOutcome> outcome = saver_->take_outcome();
  if (!outcome) return;
  saving_step_ = -1;
  log::debug("the save of step " + std::to_string(outcome->step) + " kept training waiting for " +
             figure_text(outcome->stall_seconds) + " s");
  if (!outcome->committed) return note_failure(*outcome);
  ++committed_;
  saved_step_ = outcome->step;
  watch_.note_save(outcome->seconds);
  // On the CPU, the processor time of the writer is taken from training.
  const double taken =
      run_.parts.device.is_cpu() ? outcome->processor_seconds / std::max(1, num_threads()) : 0.0;
  clock_->cost(outcome->stall_seconds + taken, outcome->seconds);
}

void Saving::note_failure(const SaveOutcome& outcome) {
  if (outcome.nonfinite) {
    nonfinite_ = outcome;
  } else {
    ++failed_;
  }
  TrainerState& record = run_.trainer_state;
  if (record.best_model_checkpoint == run_.checkpoint_path(outcome.step)) {
    record.best_model_checkpoint = best_before_;
    run_.state.lost_best_step = outcome.step;
  }
  run_.state.automatic_steps = automatic_before_;
}

void Saving::update_records() {
  watch_.keep();
  const RunState& state = run_.state;
  const Plan& plan = run_.plan;
  TrainerState& record = run_.trainer_state;
  record.epoch = run_.epoch();
  record.global_step = state.step;
  record.max_steps = plan.max_steps;
  record.logging_steps = plan.logging_steps;
  record.eval_steps = plan.eval_steps > 0 ? plan.eval_steps : plan.logging_steps;
  record.save_steps = plan.save_steps;
  record.train_batch_size = run_.split.rows;
  record.num_train_epochs = plan.num_train_epochs;
  record.num_input_tokens_seen = state.tokens_seen;
  record.total_flos = state.total_flos;
  record.control.should_training_stop = run_.is_last_step() || state.stop_early;
  if (run_.args.early_stopping_patience) {
    record.early_stopping = EarlyStoppingState{.patience = *run_.args.early_stopping_patience,
                                               .threshold = run_.args.early_stopping_threshold,
                                               .patience_counter = state.early_stopping_counter};
  }
  if (run_.stream) {
    run_.state.stream = run_.stream->state(state.position.epoch, state.position.sample);
  }
  run_.state.schedule = run_.schedule->state();
}

std::optional<int64_t> Saving::best_checkpoint_step() const {
  const auto& path = run_.trainer_state.best_model_checkpoint;
  return path ? checkpoint::parse_checkpoint_name(file_name(*path)) : std::nullopt;
}

SavesToCome Saving::saves_to_come() const {
  const TrainingArgs& args = run_.args;
  const Plan& plan = run_.plan;
  SavesToCome saves{.trains = !run_.is_last_step() && !run_.state.stop_early,
                    .on_schedule = args.save_strategy != "no",
                    .left = 1,
                    .limit = args.save_total_limit};
  const int64_t step = run_.state.step;
  if (args.save_strategy == "steps") {
    const int64_t last = plan.max_steps % plan.save_steps == 0 ? 0 : 1;
    saves.left = plan.max_steps / plan.save_steps - step / plan.save_steps + last;
  } else if (args.save_strategy == "epoch") {
    const int64_t per_epoch = run_.loader->updates_per_epoch();
    saves.left = (plan.max_steps - step + per_epoch - 1) / per_epoch;
  }
  // The best checkpoint is kept in addition.
  if (saves.limit && args.metric_for_best_model) ++*saves.limit;
  return saves;
}

// Returns the number of checkpoints that the next scheduled save deletes first if it finds no
// space.
int64_t Saving::deletable_before_next() const {
  const int64_t next = run_.state.step + 1;
  try {
    return std::ssize(checkpoint::deletable_before(run_.files, run_.args.output_dir,
                                                   {.step = next, .run_id = run_.state.run_id},
                                                   rotation_policy()));
  } catch (const Error& error) {  // the first save reports it
    log::debug(error.what());
    return 0;
  }
}

// Returns the bytes of the finished model and the results.
uint64_t Saving::end_bytes() const {
  const Plan& plan = run_.plan;
  const int64_t steps = plan.max_steps - run_.state.step;
  int64_t entries = plan.logging_steps > 0 ? steps / plan.logging_steps : 0;
  if (plan.eval_steps > 0) entries += steps / plan.eval_steps;
  return contents_.bytes(SaveKind::kModel) + kResultBytes + run_.trainer_state.to_text().size() +
         static_cast<uint64_t>(entries) * kLogEntryBytes;
}

// Refuses the run now, when nothing is lost, instead of after hours.
void Saving::check_space() const {
  const SaveKind scheduled =
      run_.args.save_only_model ? SaveKind::kWithoutOptimizer : SaveKind::kCheckpoint;
  const std::string error = share_text(run_.world(), [&] {
    const SavedBytes bytes{.scheduled = with_margin(contents_.bytes(scheduled)),
                           .automatic = with_margin(contents_.bytes(SaveKind::kCheckpoint)),
                           .end = end_bytes()};
    std::vector<SavingFolder> folders = run_.storage.mirrors().saving_folders(run_.state.run_id);
    folders.front().deletable = deletable_before_next();
    const SpaceVerdict verdict = judge_space(folders, bytes, saves_to_come(),
                                             /*is_resumed=*/run_.state.step > 0);
    if (!verdict.warning.empty()) log::warning(verdict.warning);
    return verdict.error;
  });
  if (!error.empty()) throw Error(ErrorKind::kIo, error);
}

}  // namespace finetune
