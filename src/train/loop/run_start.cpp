// SPDX-License-Identifier: MIT
#include "train/loop/run_start.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/config/dump.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/report/figure_text.h"
#include "finetune/tensor/device.h"
#include "train/folder/same_experiment.h"
#include "train/setup/resume.h"

namespace finetune {
namespace {

// Estimates the sum of losses from the log: each step counts with the mean of its window.
double sum_of_logged_losses(const TrainerState& record) {
  double sum = 0.0;
  int64_t logged = 0;
  for (const nlohmann::ordered_json& entry : record.log_history) {
    if (!entry.contains("loss") || !entry["loss"].is_number()) continue;
    const auto found = entry.find("step");
    const int64_t step =
        found != entry.end() && found->is_number_integer() ? found->get<int64_t>() : logged;
    sum += entry["loss"].get<double>() * static_cast<double>(step - logged);
    logged = step;
  }
  return sum;
}

// An accelerator that has lost its kernels trains as well, many times slower.
std::string kernels_text(const c10::Device& device) {
  const std::string kernels = describe_kernels(device);
  return kernels.empty() ? "" : ", kernels: " + kernels;
}

}  // namespace

void RunStart::begin_fresh() {
  const TrainingArgs& args = run_.args;
  RunState& state = run_.state;
  state.run_id = run_.world().broadcast(checkpoint::random_identifier());
  state.identity = run_.parts.identity;
  take_inputs();
  const int64_t ranks = run_.world().size();
  state.effective_batch_size = asked_effective_batch(args, ranks);
  run_.prepare(resumed_split(run_.config, state, ranks));
  if (args.full_determinism) {
    state.shard_rows = run_.split.rows;
    state.shard_threads = run_.is_one_threaded() ? 1 : 0;
  }
  log::info("training " + std::to_string(run_.plan.max_steps) + " steps of " +
            std::to_string(state.effective_batch_size) +
            (args.packing ? " packed rows (" : " samples (") +
            std::to_string(args.per_device_train_batch_size) + " x " +
            std::to_string(run_.split.accumulation) +
            (ranks > 1 ? " x " + std::to_string(ranks) + " processes" : std::string()) + "), " +
            (run_.stream ? std::string()
                         : std::to_string(run_.loader->updates_per_epoch()) + " steps an epoch, ") +
            "on " + describe_device(run_.parts.device) + kernels_text(run_.parts.device));
}

void RunStart::restore(const checkpoint::CheckpointEntry& from, FileSystem& files) {
  const SavedFolder folder{.files = files, .path = from.path, .is_foreign = from.foreign};
  saving_.records().load(folder);
  if (from.foreign) {
    resume_foreign(from.path);
  } else {
    resume_own(from.path);
  }
  saving_.restarted(/*is_saved=*/!from.foreign);
  saving_.contents().load(folder);
  if (!from.foreign) log_restored();
  take_inputs();
  if (run_.args.resume_from_checkpoint != "auto") {
    run_.state.origin = run_.args.resume_from_checkpoint;
  }
  run_.state.finished = false;
  run_.state.has_manifest = false;
}

// Stores the inputs of this session in the run's state.
void RunStart::take_inputs() {
  RunState& state = run_.state;
  state.chat_date = run_.parts.chat_date;
  state.config = to_json(run_.args);
  state.memory = run_.parts.memory;
  state.inputs = run_.parts.inputs;
  state.environment = run_.environment();
}

namespace {

// The names of the model and the adapter that a run with these keys starts from.
std::string start_names(const nlohmann::ordered_json& keys) {
  std::string names;
  for (const char* key : {"model_name_or_path", "adapter_name_or_path"}) {
    const auto found = keys.find(key);
    if (found == keys.end() || !found->is_string()) continue;
    names +=
        (names.empty() ? "" : ", ") + std::string(key) + " '" + found->get<std::string>() + "'";
  }
  return names.empty() ? "no names" : names;
}

}  // namespace

void RunStart::resume_own(const std::string& folder) {
  RunState& state = run_.state;
  const RunState saved = state;
  const bool compares_evaluations =
      run_.args.load_best_model_at_end || run_.args.early_stopping_patience;
  check_identity(
      saved.identity, run_.parts.identity,
      {.folder = folder,
       .compares_evaluations = compares_evaluations,
       .starts = start_names(saved.config) + " then, " + start_names(to_json(run_.args)) + " now"},
      [&] { return explain_other_data(run_.config, saved); });
  const BatchSplit asked = resumed_split(run_.config, saved, run_.world().size());
  memory_.take_saved_split(saved, asked);
  run_.prepare(asked);
  if (run_.stream) {
    run_.stream->restore(state.stream, state.position.epoch, state.position.sample);
  }
  const std::optional<int64_t>& patience = run_.args.early_stopping_patience;
  state.stop_early = state.stop_early && patience && state.early_stopping_counter >= *patience;
  log::info("resuming from " + folder + " at step " + std::to_string(state.step) + " of " +
            std::to_string(run_.plan.max_steps));
  const Environment now = run_.environment();
  run_.is_same_device = saved.environment.device == now.device;
  announce_changes(saved, run_.config, now, run_.split.accumulation);
  check_shards(saved);
}

// transformers stores no position: it follows from the step and the batch size of the keys.
void RunStart::resume_foreign(const std::string& folder) {
  if (run_.stream) {
    throw Error(ErrorKind::kConfig,
                run_.config.where("streaming") + ": streaming: " + folder +
                    " was written by transformers' Trainer, which keeps no place in a stream; "
                    "leave streaming out, or start from its weights with model_name_or_path");
  }
  begin_fresh();
  RunState& state = run_.state;
  const TrainerState& record = run_.trainer_state;
  state.step = state.updates = state.window_first_step = record.global_step;
  const int64_t per_epoch = run_.loader->updates_per_epoch();
  state.position = {.epoch = state.step / per_epoch,
                    .sample = state.step % per_epoch * state.effective_batch_size};
  state.total_flos = record.total_flos;
  state.tokens_seen = record.num_input_tokens_seen;
  if (record.early_stopping) state.early_stopping_counter = record.early_stopping->patience_counter;
  state.total_loss += sum_of_logged_losses(record);
  log::info("resuming from " + folder + ", which transformers' Trainer wrote, at step " +
            std::to_string(state.step) + " of " + std::to_string(run_.plan.max_steps) +
            ": weights, optimizer and log restored; the order of samples and the masks are "
            "finetune's own from here");
}

// Checks that the logical shards are those that the run began with, because its bits depend on
// them.
void RunStart::check_shards(const RunState& saved) {
  RunState& state = run_.state;
  const int64_t ranks = run_.world().size();
  const std::string processes =
      "processes " + std::to_string(saved.environment.processes) + " -> " + std::to_string(ranks);
  const bool has_other_processes = saved.environment.processes != ranks;
  if (!run_.args.full_determinism) {
    state.shard_rows = state.shard_threads = 0;
    if (has_other_processes) log::warning("not bit-exact from here: " + processes);
    return;
  }
  const int64_t then = saved.shard_rows;
  const int64_t rows = run_.split.rows;
  state.shard_rows = rows;
  state.shard_threads = run_.is_one_threaded() ? 1 : 0;
  const std::string difference = shard_difference(saved, state.shard_threads);
  if (!difference.empty()) log::warning("not bit-exact from here: " + difference);
  if (then == rows) {
    if (has_other_processes) {
      log::info("another number of processes: " + processes + "; the run keeps its " +
                std::to_string(run_.split.micro_batches()) +
                " logical shards a step, which its bits depend on");
    }
    return;
  }
  log::warning("not bit-exact from here: " +
               (then == 0 ? std::string("the run began without full_determinism")
                          : "a logical shard has " + std::to_string(rows) + " samples instead of " +
                                std::to_string(then) + "; set per_device_train_batch_size back"));
}

// Logs what was restored, one line each. Differences to the checkpoint were logged before.
void RunStart::log_restored() const {
  const auto restored = [](const std::string& what) { log::debug("  restored: " + what); };
  const TrainingArgs& args = run_.args;
  const RunState& state = run_.state;
  for (const std::string& line : saving_.contents().restored()) restored(line);
  restored("schedule (" + args.lr_scheduler_type + ", learning rate " +
           figure_text(run_.schedule->learning_rate(state.updates)) + ")");
  restored(
      "position (epoch " + std::to_string(state.position.epoch) +
      (args.packing ? ", packed row " : ", sample ") + std::to_string(state.position.sample) +
      (run_.stream ? std::string() : " of " + std::to_string(run_.loader->samples_per_epoch())) +
      ")");
  restored("random numbers (functions of seed " + std::to_string(args.seed) +
           ", the step and the sample: no generator to restore)");
  restored("log (" + std::to_string(run_.trainer_state.log_history.size()) + " entries)");
  if (run_.trainer_state.best_metric) {
    restored("best metric (" + figure_text(*run_.trainer_state.best_metric) + ")");
  }
  if (args.early_stopping_patience) {
    restored("early stopping (" + std::to_string(state.early_stopping_counter) + " of " +
             std::to_string(*args.early_stopping_patience) + " evaluations without progress)");
  }
  if (state.evaluation_pending) {
    log::info("  the evaluation that was interrupted at this step runs again");
  }
}

}  // namespace finetune
