// SPDX-License-Identifier: MIT
#include "train/start.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/rotation.h"
#include "finetune/config/dump.h"
#include "finetune/state/finite_state.h"
#include "finetune/train/check_files.h"
#include "train/folder/exports.h"
#include "train/folder/former_run.h"
#include "train/folder/same_experiment.h"
#include "train/save/best_model.h"
#include "train/setup/memory_budget.h"
#include "train/setup/resume.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;
using Record = StartFacts::Record;

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
  } catch (const checkpoint::NewerFormat& error) {
    // A damaged digit is no other version.
    if (checkpoint::inspect_finished_model(files, output_dir, false).is_newer) throw;
    const auto record =
        checkpoint::recorded_file(files, output_dir, checkpoint::kFinetuneStateFile);
    if (record && *record == checkpoint::record_file(files, path)) throw;
    return {.state = std::nullopt, .damage = error.what()};
  } catch (const Error& error) {
    // A folder, a link to nothing, a FIFO or device, a socket.
    constexpr std::array kNoFile = {EISDIR, ENOENT, ELOOP, EINVAL, ENXIO};
    const bool is_no_file = std::ranges::find(kNoFile, error.system_error()) != kNoFile.end();
    if (error.kind() == ErrorKind::kIo && !is_no_file) throw;  // may be temporary
    return {.state = std::nullopt, .damage = error.what()};
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

// Never resume from a checkpoint that contains NaN or Inf.
std::optional<CheckpointEntry> newest_finite(FileSystem& files, const std::string& output_dir) {
  while (true) {
    std::optional<CheckpointEntry> entry = checkpoint::find_newest_good(files, output_dir, kWarn);
    if (!entry) return entry;
    const std::string problem = nonfinite_in_files(files, entry->path);
    if (problem.empty()) return entry;
    const std::string quarantined =
        checkpoint::quarantine(files, output_dir, entry->step, checkpoint::QuarantineReason::kBad);
    log::warning(entry->path + " is skipped: " + problem + "; it is renamed to " + quarantined);
  }
}

// Returns the checkpoint to resume from; nullopt: start at step 0.
std::optional<CheckpointEntry> choose_checkpoint(const LoadedConfig& config, RunStorage& storage) {
  // Verifying reads every byte of a checkpoint.
  const auto interruptible =
      interruptible_reads(storage.folder().shared_files(), "looking for the newest checkpoint");
  FileSystem& files = *interruptible;
  const TrainingArgs& args = config.args;
  storage.mirrors().restore_checkpoints();
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
  if (!entry.whole && !files.exists(join_path(path, checkpoint::kTrainerStateFile)) &&
      !files.exists(join_path(path, checkpoint::kManifestFile))) {
    throw Error(ErrorKind::kConfig,
                config.where("resume_from_checkpoint") + ": resume_from_checkpoint: '" + path +
                    "' is no checkpoint (it holds no " + checkpoint::kTrainerStateFile +
                    "); name a checkpoint-N folder, or start from a model's weights with "
                    "model_name_or_path");
  }
  if (!entry.whole) {
    throw Error(ErrorKind::kCheckpoint, config.where("resume_from_checkpoint") +
                                            ": resume_from_checkpoint: '" + path +
                                            "' is not a valid checkpoint: " + entry.problem);
  }
  storage.quarantine(entry.step);
  return entry;
}

// The keys that differ from those of a finished run and that its end does not take, as a list.
std::string names_of_changed_keys(const LoadedConfig& config, const RunState& finished) {
  std::string names;
  const LoadedConfig taken = with_saved_choices(config, finished);
  for (const KeyChange& change : changed_keys(finished.config, to_json(taken.args))) {
    if (change.policy == ResumePolicy::kFree || change.is_path) continue;
    names += (names.empty() ? "" : ", ") + change.name;
  }
  return names;
}

void say_finished(const LoadedConfig& config, const RunState& finished,
                  const std::vector<std::string>& missing) {
  const std::string changed = names_of_changed_keys(config, finished);
  if (!changed.empty()) {
    log::warning("not applied, because the run is finished: " + changed +
                 "; choose another output_dir, or start over with --restart");
  }
  log::info("already finished: " + config.args.output_dir + " holds the model after " +
            std::to_string(finished.step) + " steps; " +
            (missing.empty() ? "nothing to do"
                             : "missing of its exports and written now: " + join(missing)));
}

// One start: what was found, and what is done about it.
class Start {
 public:
  Start(RunStorage& storage, const LoadedConfig& config, const RunOptions& options)
      : storage_(storage), config_(config), args_(config.args), options_(options) {
    facts_.restarts = options.restart || args_.resume_from_checkpoint == "none";
  }

  Beginning begin(const SessionStart& session, bool again) {
    observe_record(again);
    while (true) {
      switch (const StartCase found = decide(facts_)) {
        case StartCase::kVerifyModel:
          verify_model();
          break;
        case StartCase::kCompareRun:
          compare_run();
          break;
        case StartCase::kCheckSession:
          facts_.is_session_over = is_session_over(args_, session);
          break;
        case StartCase::kFindCheckpoint:
          find_checkpoint();
          break;
        default:
          return act(found);
      }
    }
  }

 private:
  void observe_record(bool again) {
    Finished before;
    if (!facts_.restarts) {
      checkpoint::complete_export(storage_.folder().files(), args_.output_dir);
      before = finished_state(args_.output_dir);
      if (!before.state) refuse_other_programs(before);
    }
    const bool is_over = before.state && !asks_for_more(*before.state, args_);
    if (!is_over && !again) {
      open_mirrors(before);
      if (!facts_.restarts && !before.state) {
        const std::string damage = storage_.mirrors().restore_finished();
        before = finished_state(args_.output_dir);
        if (!before.state && before.damage.empty()) before.damage = damage;
      }
    }
    note_record(std::move(before));
  }

  void refuse_other_programs(const Finished& before) {
    refuse_other_json(storage_.folder().files(), config_, {.path = args_.output_dir});
    // A file of another program may have the name of a finished run's state.
    if (!before.damage.empty() && !args_.mirror_dir) {
      refuse_foreign_files(storage_.folder().files(), config_, {.path = args_.output_dir});
    }
  }

  void open_mirrors(const Finished& before) {
    storage_.mirrors().open(
        {.starts_over = facts_.restarts,
         .restores = !facts_.restarts && !before.state && args_.resume_from_checkpoint == "auto",
         .check = [&](const RunState& state, const FoundRun& run) {
           check_same_run(config_, state, run);
         }});
  }

  void note_record(Finished before) {
    finished_ = std::move(before.state);
    damage_ = std::move(before.damage);
    const bool is_other = finished_ && args_.resume_from_checkpoint != "auto" &&
                          finished_->origin != args_.resume_from_checkpoint;
    if (is_other) finished_.reset();
    facts_.asks_for_more = finished_ && asks_for_more(*finished_, args_);
    facts_.record = finished_         ? Record::kFinished
                    : damage_.empty() ? Record::kNone
                                      : Record::kDamaged;
  }

  void verify_model() {
    damage_ = storage_.finished().verify(*finished_);
    facts_.is_model_whole = damage_.empty();
    if (!damage_.empty()) return;
    finished_ = finished_state(args_.output_dir).state;  // repaired
    if (!finished_) facts_.record = Record::kNone;
  }

  void compare_run() {
    check_same_run(config_, *finished_, {.folder = args_.output_dir});
    facts_.is_compared = true;
    if (!facts_.asks_for_more) return;
    log::info("the finished run continues: the schedule is computed for the new total");
  }

  void find_checkpoint() {
    FileSystem& files = storage_.folder().files();
    if (facts_.record == Record::kNone) {
      refuse_foreign_files(files, config_, {.path = args_.output_dir});
    }
    newest_ = choose_checkpoint(config_, storage_);
    facts_.has_checkpoint = newest_.has_value();
    facts_.is_record_lost = !FileSystem::local().exists(path_of(checkpoint::kFinetuneStateFile)) &&
                            FileSystem::local().exists(path_of(checkpoint::kManifestFile));
  }

  // What is done in a decided case.
  Beginning act(StartCase found) {
    switch (found) {
      case StartCase::kRestart:
        check_inputs(config_);  // before anything is moved; a mirror may be out of reach
        storage_.quarantine();
        storage_.quarantine_former_run();
        storage_.forget_finished();
        return {};
      case StartCase::kFinished:
        return {.code = leave_finished()};
      case StartCase::kSessionOver:
        return {.code = kExitStoppedEarly};
      case StartCase::kExtend:
        storage_.forget_finished();
        break;
      case StartCase::kRepeatEnd:
        log::warning(lost_record() + "; its end is done again");
        break;
      case StartCase::kRebuild:
        begin_rebuild();
        break;
      case StartCase::kNothingToExtend:
      case StartCase::kNothingToRepeat:
      case StartCase::kNothingToRebuild:
        refuse(found);
      default:
        break;
    }
    return {.newest = newest_};
  }

  int leave_finished() {
    checkpoint::sweep_stale(storage_.folder().files(), args_.output_dir, kWarn);
    const std::vector<std::string> missing = missing_exports(args_);
    say_finished(config_, *finished_, missing);
    warn_of_lost_best(*finished_);
    storage_.mirrors().note_former_end(*finished_);
    // The command that runs at the end waits for the exports.
    if (options_.on_already_finished && missing.empty()) options_.on_already_finished();
    return finished_->lost_best_step == 0 ? kExitFinished : kExitCheckpointsFailed;
  }

  // Announces that the model is rebuilt, and quarantines its damaged files. Throws Error(kConfig)
  // if steps would be trained again with keys that the run did not have.
  void begin_rebuild() {
    if (finished_ && newest_->step < finished_->step) {
      const std::string names = names_of_changed_keys(config_, *finished_);
      if (!names.empty()) {
        throw Error(ErrorKind::kConfig,
                    damaged_run() + " and is rebuilt by training again from step " +
                        std::to_string(newest_->step) + ", which needs the keys that it had: set " +
                        names + " back");
      }
    }
    log::warning("the finished run is damaged (" + damage_ + "): rebuilding the model from " +
                 newest_->path);
    storage_.finished().prepare_rebuild(newest_->run_id);
  }

  // Starting at step 0 would silently throw away what is there.
  [[noreturn]] void refuse(StartCase found) const {
    if (found == StartCase::kNothingToExtend) {
      throw Error(ErrorKind::kCheckpoint,
                  args_.output_dir +
                      " holds a finished run without a checkpoint to resume from; "
                      "start over with --restart, or choose another output_dir");
    }
    if (found == StartCase::kNothingToRepeat) {
      throw Error(ErrorKind::kCheckpoint,
                  lost_record() +
                      ", and there is no checkpoint to do its end again from; put the file back, "
                      "add --restart to train again from step 0, or choose another output_dir");
    }
    throw Error(ErrorKind::kCheckpoint,
                damaged_run() +
                    ", and neither a mirror nor a checkpoint can repair it; put a good copy of "
                    "the file back, add --restart to train again from step 0, or choose another "
                    "output_dir");
  }

  [[nodiscard]] std::string path_of(const char* name) const {
    return join_path(args_.output_dir, name);
  }

  [[nodiscard]] std::string damaged_run() const {
    return "the finished run in '" + args_.output_dir + "' is damaged (" + damage_ + ")";
  }

  [[nodiscard]] std::string lost_record() const {
    return "'" + path_of(checkpoint::kFinetuneStateFile) + "' is missing next to '" +
           path_of(checkpoint::kManifestFile) + "', so the run is not known to be finished";
  }

  RunStorage& storage_;
  const LoadedConfig& config_;
  const TrainingArgs& args_;
  const RunOptions& options_;
  StartFacts facts_;
  std::optional<RunState> finished_;  // the record
  std::string damage_;                // of the record or the model, as a clause
  std::optional<CheckpointEntry> newest_;
};

}  // namespace

StartCase decide(const StartFacts& facts) {
  const bool is_finished = facts.record == Record::kFinished;
  if (is_finished && !facts.asks_for_more && !facts.is_model_whole) return StartCase::kVerifyModel;
  const bool is_damaged = facts.record == Record::kDamaged || facts.is_model_whole == false;
  if (is_finished && !is_damaged) {
    if (!facts.is_compared) return StartCase::kCompareRun;
    if (!facts.asks_for_more) return StartCase::kFinished;
  }
  if (!facts.is_session_over) return StartCase::kCheckSession;
  if (*facts.is_session_over) return StartCase::kSessionOver;
  if (facts.restarts) return StartCase::kRestart;
  if (!facts.has_checkpoint) return StartCase::kFindCheckpoint;
  const bool has_one = *facts.has_checkpoint;
  if (is_damaged) return has_one ? StartCase::kRebuild : StartCase::kNothingToRebuild;
  if (is_finished) return has_one ? StartCase::kExtend : StartCase::kNothingToExtend;
  if (facts.is_record_lost) return has_one ? StartCase::kRepeatEnd : StartCase::kNothingToRepeat;
  return has_one ? StartCase::kResume : StartCase::kFresh;
}

Beginning begin_run(RunStorage& storage, const LoadedConfig& config, const RunOptions& options,
                    const SessionStart& start, bool again) {
  return Start(storage, config, options).begin(start, again);
}

RunState state_of(const CheckpointEntry& entry) {
  const std::string path = join_path(entry.path, checkpoint::kFinetuneStateFile);
  return RunState::parse(FileSystem::local().read_all(path, 64 << 20), path);
}

}  // namespace finetune
