// SPDX-License-Identifier: MIT
#include "finetune/train/run.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/output_lock.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/config/batch_split.h"
#include "finetune/config/dump.h"
#include "finetune/data/sample_stream.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/plan/memory_advice.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/progress_record.h"
#include "finetune/state/finite_state.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/gpu.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/folder/former_run.h"
#include "train/folder/rebuild.h"
#include "train/folder/run_storage.h"
#include "train/folder/same_experiment.h"
#include "train/loop/evaluate.h"
#include "train/loop/trainer.h"
#include "train/save/best_model.h"
#include "train/session/session_trackers.h"
#include "train/session/shared_start.h"
#include "train/setup/adapter.h"
#include "train/setup/assemble.h"
#include "train/setup/evaluated_model.h"
#include "train/setup/memory_budget.h"
#include "train/setup/memory_workload.h"
#include "train/setup/resume.h"
#include "train/setup/run_inputs.h"
#include "train/setup/session.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;

const checkpoint::Report kWarn = [](const std::string& line) { log::warning(line); };

// State left by a previous, finished run.
struct Finished {
  std::optional<RunState> state;
  std::string damage;  // why it cannot be read; then it is rebuilt from the last checkpoint
};

Finished finished_state(const std::string& output_dir) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(output_dir, checkpoint::kFinetuneStateFile);
  if (!files.exists(path)) return {};
  try {
    RunState state = RunState::parse(files.read_all(path, 64 << 20), path);
    if (!state.finished) return {};
    return {.state = std::move(state), .damage = ""};
  } catch (const Error& error) {
    // A folder, a link to nothing, a FIFO or device, a socket.
    constexpr std::array kNoFile = {EISDIR, ENOENT, ELOOP, EINVAL, ENXIO};
    const bool is_no_file = std::ranges::find(kNoFile, error.system_error()) != kNoFile.end();
    if (error.kind() == ErrorKind::kIo && !is_no_file) throw;  // may be temporary
    return {.state = std::nullopt, .damage = error.what()};
  }
}

// A checkpoint that was complete a moment ago could not be read.
class CheckpointUnreadable : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Read>
auto reading_checkpoint(Read read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    throw CheckpointUnreadable(error.what());
  }
}

// Whether the keys ask for more steps than the finished run made.
bool asks_for_more(const RunState& finished, const TrainingArgs& args) {
  const auto number = [&](const char* key) {
    const auto found = finished.config.find(key);
    return found != finished.config.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  if (args.max_steps > 0) return args.max_steps > finished.max_steps;
  return args.num_train_epochs > number("num_train_epochs") && number("max_steps") <= 0;
}

RunState state_of(const CheckpointEntry& entry) {
  const std::string path = join_path(entry.path, checkpoint::kFinetuneStateFile);
  return RunState::parse(FileSystem::local().read_all(path, 64 << 20), path);
}

// Never resume from a checkpoint that contains NaN or Inf.
std::optional<CheckpointEntry> newest_finite(FileSystem& files, const std::string& output_dir) {
  while (true) {
    std::optional<CheckpointEntry> entry = checkpoint::find_newest_good(files, output_dir, kWarn);
    if (!entry) return entry;
    const std::string problem = nonfinite_in_files(files, entry->path);
    if (problem.empty()) return entry;
    const std::string aside =
        checkpoint::set_aside(files, output_dir, entry->step, checkpoint::AsideReason::kBad);
    log::warning(entry->path + " is skipped: " + problem + "; it is renamed to " + aside);
  }
}

// Returns the checkpoint to resume from; nullopt: start at step 0.
std::optional<CheckpointEntry> choose_checkpoint(const LoadedConfig& config,
                                                 const RunOptions& options, RunStorage& storage) {
  // Verifying reads every byte of a checkpoint.
  const auto interruptible =
      interruptible_reads(storage.shared_files(), "looking for the newest checkpoint");
  FileSystem& files = *interruptible;
  const TrainingArgs& args = config.args;
  if (options.restart || args.resume_from_checkpoint == "none") {
    storage.set_aside();
    storage.set_aside_former_run();
    storage.forget_finished();
    return std::nullopt;
  }
  storage.bring_back_checkpoints();
  if (args.resume_from_checkpoint == "auto") {
    return newest_finite(files, args.output_dir);
  }
  const std::string& path = args.resume_from_checkpoint;
  // If the same command runs again, it continues its own run instead of starting from that path
  // again.
  std::vector<CheckpointEntry> begun = checkpoint::list_checkpoints(files, args.output_dir, true);
  std::reverse(begun.begin(), begun.end());
  for (const CheckpointEntry& candidate : begun) {
    if (!candidate.whole || candidate.foreign) continue;
    if (state_of(candidate).origin == path) return candidate;
    break;
  }
  if (!files.exists(path)) {
    throw Error(ErrorKind::kConfig, config.where("resume_from_checkpoint") +
                                        ": resume_from_checkpoint: there is no '" + path +
                                        "'; name a checkpoint folder, auto or none");
  }
  CheckpointEntry entry = checkpoint::inspect_checkpoint(files, path, true);
  if (!entry.whole) {
    throw Error(ErrorKind::kCheckpoint, config.where("resume_from_checkpoint") +
                                            ": resume_from_checkpoint: '" + path +
                                            "' is not a valid checkpoint: " + entry.problem);
  }
  storage.set_aside(entry.step);
  return entry;
}

// Equal bits need the number of threads that the run began with.
void reuse_threads(const RunState& state, const TrainingArgs& args, int64_t processes) {
  // bits do not depend on it
  if (args.full_determinism && state.environment.device == "cpu") return;
  const bool is_exact = args.full_determinism || state.environment.processes == processes;
  if (is_exact && state.environment.threads >= 1 && state.environment.threads <= 1024) {
    set_num_threads(static_cast<int>(state.environment.threads));
  }
}

void show_notes(const LoadedConfig& config) {
  for (const std::string& note : config.notes) log::warning(note);
  const TrainingArgs& args = config.args;
  const bool evaluates = args.do_eval || args.eval_strategy != "no" || args.eval_on_start;
  if (args.do_train && !evaluates && config.is_set("validation_file")) {
    log::info(config.where("validation_file") +
              ": validation_file is not read: set do_eval: true to evaluate at the end, or "
              "eval_strategy to evaluate during training");
  }
}

// While a training locks the folder, metrics are printed but not stored.
void write_evaluation(const std::string& output_dir, const std::string& name,
                      EvaluationResult& result) {
  try {
    const checkpoint::OutputLock lock(output_dir);
    checkpoint::ResultUpdate update(FileSystem::local(), output_dir);
    write_results(FileSystem::local(), output_dir, name, result.metrics);
    if (result.files) result.files->write(FileSystem::local(), output_dir);
    update.commit();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBusy) throw;
    log::warning(name + "_results.json is not written: " + std::string(error.what()));
  }
}

// Evaluates and predicts without training. Returns the metrics of all splits.
nlohmann::ordered_json evaluate_model(const LoadedConfig& config, const AssemblyRequest& request) {
  const TrainingArgs& args = config.args;
  const bool is_shown = !request.world || request.world->is_first();
  ProgressDisplay progress(is_shown ? progress_mode(args) : ProgressMode::kNone);
  Parts parts = assemble(config, request, progress);
  if (args.full_determinism && parts.device.is_cpu()) parts.batches_at_once = num_threads();
  nlohmann::ordered_json all;
  for (const Split split : {Split::kValidation, Split::kTest}) {
    const bool predicts = split == Split::kTest;
    if (!(predicts ? request.predict : request.evaluate)) continue;
    int64_t rows_at_a_time = args.per_device_eval_batch_size;
    std::optional<EvaluationResult> result = evaluate(parts, split, args, progress, rows_at_a_time);
    if (!result) throw Interrupted(predicts ? "predicting" : "evaluating");
    nlohmann::ordered_json& metrics = result->metrics;
    log::info(describe_metrics(metrics));
    metrics[predicts ? "predict_samples" : "eval_samples"] =
        (predicts ? parts.test_data : parts.validation_data)->size();
    if (task_of(args).reports_perplexity)
      metrics["perplexity"] = std::exp(metrics["eval_loss"].get<double>());
    if (parts.world->is_first() && (config.is_set("output_dir") || predicts)) {
      write_evaluation(args.output_dir, predicts ? "predict" : "eval", *result);
    }
    all.update(metrics);
  }
  return all;
}

void say_finished(const LoadedConfig& config, const RunState& finished) {
  std::string changed;
  const LoadedConfig taken = with_saved_choices(config, finished);
  for (const KeyChange& change : changed_keys(finished.config, to_json(taken.args))) {
    if (change.policy == ResumePolicy::kFree || change.is_path) continue;
    changed += (changed.empty() ? "" : ", ") + change.name;
  }
  if (!changed.empty()) {
    log::warning("not applied, because the run is finished: " + changed +
                 "; choose another output_dir, or start over with --restart");
  }
  log::info("already finished: " + config.args.output_dir + " holds the model after " +
            std::to_string(finished.step) + " steps; nothing to do");
}

// How a session starts.
struct Beginning {
  std::optional<int> code = {};  // exit code, if there is nothing to do
  std::optional<CheckpointEntry> newest = {};
};

// Examines the output folder and prepares it. `again`: a checkpoint could not be read in the
// previous attempt.
Beginning begin_run(RunStorage& storage, const LoadedConfig& config, const RunOptions& options,
                    const SessionStart& start, bool again) {
  const TrainingArgs& args = config.args;
  const bool may_go_on = !options.restart && args.resume_from_checkpoint != "none";
  Finished before;
  if (may_go_on) {
    checkpoint::complete_export(storage.files(), args.output_dir);
    before = finished_state(args.output_dir);
  }
  if (may_go_on && !before.state) {
    refuse_other_json(storage.files(), config, {.path = args.output_dir});
    // A file of another program may have the name of a finished run's state.
    if (!before.damage.empty() && !args.mirror_dir) {
      refuse_foreign_files(storage.files(), config, {.path = args.output_dir});
    }
  }
  const bool was_finished = before.state && !asks_for_more(*before.state, args);
  if (!was_finished && !again) {
    storage.open_mirrors(
        {.begins_anew = !may_go_on,
         .brings_back = may_go_on && !before.state && args.resume_from_checkpoint == "auto",
         .check = [&](const RunState& state, const FoundRun& run) {
           check_same_run(config, state, run);
         }});
    if (may_go_on && !before.state) {
      const std::string damage = storage.bring_back_finished();
      before = finished_state(args.output_dir);
      if (!before.state && before.damage.empty()) before.damage = damage;
    }
  }
  std::optional<RunState> finished = std::move(before.state);
  if (finished && args.resume_from_checkpoint != "auto" &&
      finished->origin != args.resume_from_checkpoint) {
    finished.reset();
  }
  if (finished && !asks_for_more(*finished, args)) {
    before.damage = storage.verify_finished(*finished);
    if (before.damage.empty()) {
      finished = finished_state(args.output_dir).state;
    } else {
      before.state = std::exchange(finished, std::nullopt);
    }
  }
  if (finished) {
    check_same_run(config, *finished, {.folder = args.output_dir});
    if (!asks_for_more(*finished, args)) {
      checkpoint::sweep_stale(storage.files(), args.output_dir, kWarn);
      say_finished(config, *finished);
      warn_of_lost_best(*finished);
      storage.note_former_end(*finished);
      if (options.on_already_finished) options.on_already_finished();
      return {.code = finished->lost_best_step == 0 ? kExitFinished : kExitCheckpointsFailed};
    }
    log::info("the finished run continues: the schedule is computed for the new total");
  }

  if (is_session_over(args, start)) return {.code = kExitStoppedEarly};

  const bool is_unfinished = may_go_on && !finished && before.damage.empty();
  if (is_unfinished) refuse_foreign_files(storage.files(), config, {.path = args.output_dir});
  const std::optional<CheckpointEntry> newest = choose_checkpoint(config, options, storage);
  if (is_unfinished) check_lost_state(args.output_dir, newest.has_value());
  if (finished && !newest) {
    throw Error(ErrorKind::kCheckpoint,
                args.output_dir +
                    " holds a finished run without a checkpoint to resume from; "
                    "start over with --restart, or choose another output_dir");
  }
  if (finished) storage.forget_finished();
  if (!before.damage.empty()) {
    begin_rebuild(storage, config, {.damage = before.damage, .state = before.state}, newest);
  }
  return {.newest = newest};
}

constexpr char kMemoryAdvice[] =
    "set memory_budget, which cuts the batch so that it fits, or lower\n"
    "  per_device_train_batch_size and raise gradient_accumulation_steps by the same factor;\n"
    "  what was saved before is kept";

// Where memory did not suffice.
struct OutOfMemoryAt {
  int64_t step = -1;               // the last one that was completed; -1: before training
  int64_t samples_at_a_time = -1;  // after the splits of this session
};

// What was needed, what there was and what helps most; empty for a stream, and where memory does
// not even suffice to find that out.
std::string advice_on_memory(const LoadedConfig& config, const Parts& parts,
                             const std::optional<MemoryDecision>& decision,
                             const OutOfMemoryAt& at) {
  if (dynamic_cast<const SampleStream*>(parts.train_data.get()) != nullptr) return "";
  try {
    const int64_t processes = parts.world->size();
    const int64_t batch =
        std::max<int64_t>(1, asked_effective_batch(config.args, processes) / processes);
    const MemoryWorkload workload = workload_of(config, parts, batch);
    MemoryChoices choices = decision ? decision->choices : choices_of(config.args);
    if (at.samples_at_a_time > 0) choices.micro_batch = at.samples_at_a_time;
    return memory_advice(workload, choices, device_memory(parts.device));
  } catch (const std::exception&) {
    return "";
  }
}

// One line of what and where, then a line for each fact.
Error out_of_memory_error(const Parts& parts, const OutOfMemoryAt& at, const std::string& advice) {
  const std::string device = describe_device_memory(parts.device);
  std::string text = "out of memory";
  if (!device.empty()) text += " on the device";
  text += at.step < 0 ? " before the first step" : format_text(" in step {}", at.step + 1);
  if (!device.empty()) text += "\n  " + device;
  return {ErrorKind::kDevice, text + advice + "\n  " + kMemoryAdvice};
}

// The part of train() for a run whose files are in `storage`.
int train_in(RunStorage& storage, const LoadedConfig& asked, const RunOptions& options,
             bool again) {
  const SessionStart start = SessionStart::read();
  const std::shared_ptr<World> world = options.world ? options.world : make_single_process_world();
  std::optional<int> code;
  const std::optional<CheckpointEntry> newest = share_checkpoint(*world, [&] {
    Beginning beginning = begin_run(storage, asked, options, start, again);
    code = beginning.code;
    return beginning.newest;
  });
  const std::string shared_code =
      share_text(*world, [&] { return code ? std::to_string(*code) : std::string(); });
  if (!shared_code.empty()) return std::stoi(shared_code);
  std::optional<RunState> saved;
  std::string stand_in;
  if (newest && !newest->foreign) {
    saved = reading_checkpoint([&] { return state_of(*newest); });
    check_fixed_keys(*saved, asked, {.folder = newest->path});
    stand_in = share_text(
        *world, [&] { return check_starting_model(asked, *saved, {.folder = newest->path}); });
    reuse_threads(*saved, asked.args, world->size());
  }
  const LoadedConfig config = saved ? with_decided_keys(asked, *saved) : asked;
  const TrainingArgs& args = config.args;
  if (args.load_in_4bit == "auto" && args.use_peft && !args.memory_budget) {
    refuse_key(
        config, "load_in_4bit",
        "auto lets memory_budget choose four bits; set memory_budget, or true or false here");
  }
  const std::shared_ptr<Session> session = begin_session(args, start, saved ? &*saved : nullptr);
  if (world->any(!session)) return kExitStoppedEarly;
  ProgressRecord record(storage.files(), join_path(args.output_dir, kProgressFile));
  ProgressDisplay progress(world->is_first() ? progress_mode(args) : ProgressMode::kNone);
  if (world->is_first()) {
    progress.observe([&](const ProgressSnapshot& snapshot) { record.note(snapshot); });
  }
  AssemblyRequest request = training_request(args);
  request.world = world;
  request.stand_in = stand_in;
  if (newest) {
    request.weights =
        newest->foreign ? WeightSource::kForeignCheckpoint : WeightSource::kCheckpoint;
  }
  if (saved) request.chat_date = saved->chat_date;
  request.cache = {.fetch =
                       [&](const std::string& name, const std::string& path) {
                         return storage.fetch_tokens(name, path, show_steps(progress));
                       },
                   .keep = [&](const std::string& path,
                               const std::string& name) { storage.keep_tokens(path, name); }};
  Parts parts = assemble_data(config, request, progress);
  parts.session = session;
  const std::optional<MemoryDecision> decision =
      apply_memory_budget(config, parts, saved ? &*saved : nullptr);
  const LoadedConfig budgeted = decision ? decision->recorded_in(config) : config;
  if (decision) {
    parts.memory = decision->to_json();
    request.memory = decision->choices;
    if (parts.four_bits) choose_base_format(budgeted, parts);
  }
  parts.batches_at_once = batches_at_once(budgeted, parts, saved ? &*saved : nullptr, decision);
  OutOfMemoryAt at;
  try {
    assemble_model(budgeted, request, parts);
    const RunIdentity& identity = parts.identity;
    check_same(*world,
               identity.data + identity.validation + identity.tokenizer + identity.model +
                   parts.memory.dump(),
               "data, tokenizer, model or what memory_budget chose");
    if (world->is_first()) {
      parts.inputs =
          describe_inputs(config, parts, saved ? &*saved : nullptr, show_steps(progress));
    }
    Trainer trainer(budgeted, options, storage, parts, progress);
    if (newest) {
      const auto files = interruptible_reads(storage.shared_files(), "restoring the checkpoint");
      reading_checkpoint([&] { trainer.restore(*newest, *files); });
    } else {
      trainer.start_fresh();
    }
    check_same_weights(*world, parts.model->store().parameters());
    if (parts.model_config.lora) {
      check_same_base(*world, parts.pretrained, hash_cache(args, show_steps(progress)));
    }
    try {
      return trainer.run();
    } catch (...) {
      at = {.step = trainer.step(), .samples_at_a_time = trainer.samples_at_a_time()};
      throw;
    }
  } catch (...) {
    if (!is_lack_of_memory(std::current_exception())) throw;
    throw out_of_memory_error(parts, at, advice_on_memory(budgeted, parts, decision, at));
  }
}

// Retries if a checkpoint cannot be read: the next attempt reads it again or chooses another one;
// and if only results of a finished run were lost: the next attempt finds it finished.
int train_and_look_again(RunStorage& storage, const RunOptions& options) {
  constexpr int kTries = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      return train_in(storage, storage.config(), options, attempt > 1);
    } catch (const CheckpointUnreadable& failure) {
      const bool is_alone = !options.world || options.world->size() == 1;
      if (attempt == kTries || !is_alone) throw Error(ErrorKind::kIo, failure.what());
      log::warning(std::string(failure.what()) + "; looking for the newest checkpoint again");
    } catch (const ResultsLost& loss) {
      log::warning(loss.what());
      const bool is_alone = !options.world || options.world->size() == 1;
      if (attempt == kTries || !is_alone) {
        throw Error(ErrorKind::kCheckpoint,
                    "the results of the finished run are lost; run the same "
                    "command again, which accepts the model without them");
      }
    }
  }
}

// All ranks would log the same warnings.
std::string replica_level(const TrainingArgs& args) {
  const std::string& level = args.log_level_replica;
  return level == "warning" || level == "passive" ? "error" : level;
}

// Waits for rank 0 to finish copying to the mirrors, because many launchers kill all ranks when one
// exits non-zero.
void leave_behind_the_first(const std::shared_ptr<World>& world) {
  if (!world) return;
  try {
    (void)world->any(false);
  } catch (const PeerLost& lost) {  // rank 0 is done, or dead
    log::debug(lost.what());
  }
}

// A refused command is no event of the run.
void note_error(RunStorage& storage, const Error& error) {
  const bool is_refusal = error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kUsage;
  if (error.kind() == ErrorKind::kBusy || (is_refusal && !storage.session_log().is_open())) return;
  storage.session_log().add("error", {{"message", error.what()}});
}

int train(const LoadedConfig& config, const RunOptions& options) {
  const TrainingArgs& args = config.args;
  const bool is_first = !options.world || options.world->is_first();
  log::set_level(is_first ? args.log_level : replica_level(args));
  if (is_first) show_notes(config);
  if (!args.do_train) {
    (void)evaluate_model(config, {.world = options.world,
                                  .train = false,
                                  .evaluate = args.do_eval,
                                  .predict = args.do_predict,
                                  .model_folder = evaluated_folder(config, EvaluatedModel::kBase)});
    return kExitFinished;
  }
  return_freed_memory();
  SessionTrackers trackers(config, is_first);
  RunStorage storage(config, is_first);
  try {
    if (options.world) check_same_folder(*options.world, storage.config().args.output_dir);
    const int code = train_and_look_again(storage, options);
    const bool is_finished = code == kExitFinished || code == kExitCheckpointsFailed;
    const bool is_everywhere = storage.finish(is_finished);
    trackers.write(storage, is_finished);
    if (!is_finished) leave_behind_the_first(options.world);
    // With exit code 0 a user might delete the machine, and with it files that are only here.
    return is_finished && !is_everywhere ? kExitFailed : code;
  } catch (const Error& error) {
    note_error(storage, error);
    // Earlier saves are worth the wait for the mirrors. If another session owns the folder, write
    // nothing.
    if (error.kind() != ErrorKind::kBusy) {
      (void)storage.finish(false);
      trackers.write(storage, false);
    }
    throw;
  } catch (...) {
    (void)storage.finish(false);
    throw;
  }
}

}  // namespace

int run_training(const LoadedConfig& config, const RunOptions& options) {
  return explaining_lack_of_memory(kMemoryAdvice, [&] { return train(config, options); });
}

nlohmann::ordered_json run_evaluation(const LoadedConfig& config, EvaluatedModel model) {
  return explaining_lack_of_memory(kMemoryAdvice, [&] {
    return evaluate_model(
        config,
        {.train = false, .evaluate = true, .model_folder = evaluated_folder(config, model)});
  });
}

}  // namespace finetune
