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
#include "train/folder/exports.h"
#include "train/folder/run_storage.h"
#include "train/folder/same_experiment.h"
#include "train/loop/evaluate.h"
#include "train/loop/reference.h"
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
#include "train/start.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;

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

// Adds to all data what the starting model says of them.
void add_reference(const LoadedConfig& config, const AssemblyRequest& request,
                   const RunState* saved, DataParts& data, ProgressDisplay& progress) {
  Reference reference(config, request, data, saved, progress);
  data.reference = reference.identity();
  // A run that is going to be refused computes nothing before (check_identity()).
  const bool is_other = saved != nullptr && data.train_data != nullptr &&
                        (saved->identity.guides != data.reference ||
                         saved->identity.data != data.train_data->fingerprint());
  if (is_other) return;
  data.train_data = reference.add_to(data.train_data, "train_file");
  data.validation_data = reference.add_to(data.validation_data, "validation_file");
  data.test_data = reference.add_to(data.test_data, "test_file");
}

// `folder`: of the model that is evaluated.
void warn_of_other_reference(const std::string& folder, const std::string& now) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  if (folder.empty() || !files.exists(path)) return;
  constexpr uint64_t kLargest = 64 << 20;
  const std::string then = RunState::parse(files.read_all(path, kLargest), path).identity.guides;
  if (then.empty() || then == now) return;
  log::warning("the run in '" + folder + "' was compared with " + then + "; the keys name " + now +
               ", from which rewards are measured here: check model_name_or_path and "
               "adapter_name_or_path");
}

// The same to data that are evaluated alone: with the keys of a training, which say where it
// starts.
void add_reference_of_start(const LoadedConfig& config, const AssemblyRequest& request,
                            Parts& parts, ProgressDisplay& progress) {
  AssemblyRequest training = training_request(config.args);
  training.world = request.world;
  const DataParts start = assemble_data(config, training, progress);
  Reference reference(config, training, start, nullptr, progress);
  warn_of_other_reference(request.model_folder, reference.identity());
  parts.validation_data = reference.add_to(parts.validation_data, "validation_file");
  parts.test_data = reference.add_to(parts.test_data, "test_file");
}

// Evaluates and predicts without training. Returns the metrics of all splits.
nlohmann::ordered_json evaluate_model(const LoadedConfig& config, const AssemblyRequest& request) {
  const TrainingArgs& args = config.args;
  const bool is_shown = !request.world || request.world->is_first();
  ProgressDisplay progress(is_shown ? progress_mode(args) : ProgressMode::kNone);
  Parts parts = assemble(config, request, progress);
  if (parts.setup->needs_reference()) add_reference_of_start(config, request, parts, progress);
  if (args.full_determinism && parts.device.is_cpu()) {
    parts.batches_at_once = parts.divided ? 1 : num_threads();  // of a layer that is gathered
  }
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
    if (task_of(args.task).reports_perplexity)
      metrics["perplexity"] = std::exp(metrics["eval_loss"].get<double>());
    if (parts.world->is_first() && (config.is_set("output_dir") || predicts)) {
      write_evaluation(args.output_dir, predicts ? "predict" : "eval", *result);
    }
    all.update(metrics);
  }
  return all;
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
std::string advice_on_memory(const TrainingArgs& args, const DataParts& parts,
                             const std::optional<MemoryDecision>& decision,
                             const OutOfMemoryAt& at) {
  if (is_stream(*parts.train_data)) return "";
  try {
    const int64_t processes = parts.world->size();
    const int64_t batch = std::max<int64_t>(1, asked_effective_batch(args, processes) / processes);
    const MemoryWorkload workload = workload_of(args, parts, batch);
    MemoryChoices choices = decision ? decision->choices : choices_of(args);
    if (at.samples_at_a_time > 0) choices.micro_batch = at.samples_at_a_time;
    return memory_advice(workload, choices, device_memory(parts.device));
  } catch (const std::exception&) {
    return "";
  }
}

// One line of what and where, then a line for each fact.
Error out_of_memory_error(const DataParts& parts, const OutOfMemoryAt& at,
                          const std::string& advice) {
  const std::string device = describe_device_memory(parts.device);
  std::string text = "out of memory";
  if (!device.empty()) text += " on the device";
  text += at.step < 0 ? " before the first step" : format_text(" in step {}", at.step + 1);
  if (!device.empty()) text += "\n  " + device;
  return {ErrorKind::kDevice, text + advice + "\n  " + kMemoryAdvice};
}

// Rank 0's beginning, for all ranks.
Beginning begin_together(World& world, const std::function<Beginning()>& begin) {
  Beginning beginning;
  beginning.newest = share_checkpoint(world, [&] {
    beginning = begin();
    return beginning.newest;
  });
  const std::string code = share_text(
      world, [&] { return beginning.code ? std::to_string(*beginning.code) : std::string(); });
  if (!code.empty()) beginning.code = std::stoi(code);
  return beginning;
}

// The run that a session continues.
struct Resumed {
  std::optional<RunState> state;  // nullopt: a new run, or a checkpoint of transformers
  std::string stand_in;           // AssemblyRequest::stand_in
};

Resumed read_resumed(World& world, const LoadedConfig& asked,
                     const std::optional<CheckpointEntry>& newest) {
  Resumed resumed;
  if (!newest || newest->foreign) return resumed;
  resumed.state = reading_checkpoint([&] { return state_of(*newest); });
  check_fixed_keys(*resumed.state, asked, {.folder = newest->path});
  resumed.stand_in = share_text(
      world, [&] { return check_starting_model(asked, *resumed.state, {.folder = newest->path}); });
  reuse_threads(*resumed.state, asked.args, world.size());
  return resumed;
}

AssemblyRequest request_for(RunStorage& storage, const TrainingArgs& args, const Resumed& resumed,
                            const std::optional<CheckpointEntry>& newest,
                            ProgressDisplay& progress) {
  AssemblyRequest request = training_request(args);
  request.stand_in = resumed.stand_in;
  if (newest) request.run_folder = newest->path;
  if (newest) {
    request.weights =
        newest->foreign ? WeightSource::kForeignCheckpoint : WeightSource::kCheckpoint;
  }
  if (resumed.state) request.chat_date = resumed.state->chat_date;
  request.cache = {
      .fetch =
          [&](const std::string& name, const std::string& path) {
            return storage.mirrors().fetch_tokens(name, path, show_steps(progress));
          },
      .keep = [&](const std::string& path,
                  const std::string& name) { storage.mirrors().keep_tokens(path, name); }};
  return request;
}

// Everything that one session trains with, besides the model.
struct SessionSetup {
  RunStorage& storage;
  const RunOptions& options;
  const LoadedConfig& config;  // with what memory_budget chose
  const std::optional<CheckpointEntry>& newest;
  const RunState* saved;
  ProgressDisplay& progress;
  const std::shared_ptr<Session>& session;
  const std::optional<MemoryDecision>& decision;
  int64_t batches_at_once;
};

// Assembles the model, restores or draws its weights, and trains. `made`: the parts; `at`: how far
// it came.
int train_model(const SessionSetup& setup, const AssemblyRequest& request, const DataParts& data,
                std::optional<Parts>& made, OutOfMemoryAt& at) {
  World& world = *data.world;
  Parts& parts = made.emplace(assemble_model(setup.config, request, data));
  parts.session = setup.session;
  parts.batches_at_once = setup.batches_at_once;
  if (setup.decision) parts.memory = setup.decision->to_json();
  const RunIdentity& identity = parts.identity;
  check_same(world,
             identity.data + identity.validation + identity.tokenizer + identity.model +
                 parts.memory.dump(),
             "data, tokenizer, model or what memory_budget chose");
  if (world.is_first()) {
    parts.inputs =
        describe_inputs(setup.config.args, parts, setup.saved, show_steps(setup.progress));
  }
  Trainer trainer(setup.config, setup.options, setup.storage, parts, setup.progress);
  if (setup.newest) {
    const auto files =
        interruptible_reads(setup.storage.folder().shared_files(), "restoring the checkpoint");
    reading_checkpoint([&] { trainer.restore(*setup.newest, *files); });
  } else {
    trainer.start_fresh();
  }
  check_same_weights(world, parts.model->store().parameters());
  if (parts.model_config.lora || (parts.divided && !parts.pretrained.empty())) {
    check_same_base(world, parts.pretrained,
                    hash_cache(setup.config.args, show_steps(setup.progress)));
  }
  try {
    return trainer.run();
  } catch (...) {
    at = {.step = trainer.step(), .samples_at_a_time = trainer.samples_at_a_time()};
    throw;
  }
}

// The part of train() for a run whose files are in `storage`.
int train_in(RunStorage& storage, const LoadedConfig& asked, const RunOptions& options,
             bool again) {
  const SessionStart start = SessionStart::read();
  const std::shared_ptr<World> world = options.world ? options.world : make_single_process_world();
  check_hardware(asked);
  const Beginning beginning =
      begin_together(*world, [&] { return begin_run(storage, asked, options, start, again); });
  if (beginning.code) return *beginning.code;
  const Resumed resumed = read_resumed(*world, asked, beginning.newest);
  const RunState* const saved = resumed.state ? &*resumed.state : nullptr;
  const LoadedConfig config = saved != nullptr ? with_decided_keys(asked, *saved) : asked;
  const TrainingArgs& args = config.args;
  const std::shared_ptr<Session> session = begin_session(args, start, saved);
  if (world->any(!session)) return kExitStoppedEarly;
  ProgressRecord record(storage.folder().files(), join_path(args.output_dir, kProgressFile));
  ProgressDisplay progress(world->is_first() ? progress_mode(args) : ProgressMode::kNone);
  if (world->is_first()) {
    progress.observe([&](const ProgressSnapshot& snapshot) { record.note(snapshot); });
  }
  AssemblyRequest request = request_for(storage, args, resumed, beginning.newest, progress);
  request.world = world;
  DataParts data = assemble_data(config, request, progress);
  const std::optional<MemoryDecision> decision = apply_memory_budget(config, data, saved);
  LoadedConfig budgeted = config;
  if (decision) {
    decision->record_in(budgeted.args);
    request.memory = decision->choices;
    if (data.four_bits) choose_base_format(budgeted, data);
  }
  if (data.setup->needs_reference()) add_reference(budgeted, request, saved, data, progress);
  const SessionSetup setup{
      .storage = storage,
      .options = options,
      .config = budgeted,
      .newest = beginning.newest,
      .saved = saved,
      .progress = progress,
      .session = session,
      .decision = decision,
      .batches_at_once = batches_at_once(budgeted.args, data, saved, decision)};
  std::optional<Parts> parts;  // still there where memory did not suffice, for the message
  OutOfMemoryAt at;
  try {
    const int code = train_model(setup, request, data, parts, at);
    const bool is_finished = code == kExitFinished || code == kExitCheckpointsFailed;
    if (is_finished && world->is_first()) record.remove();
    return code;
  } catch (...) {
    if (!is_lack_of_memory(std::current_exception())) throw;
    throw out_of_memory_error(data, at, advice_on_memory(budgeted.args, data, decision, at));
  }
}

// Retries if a checkpoint cannot be read: the next attempt reads it again or chooses another one;
// and if only results of a finished run were lost: the next attempt finds it finished.
int train_with_retries(RunStorage& storage, const RunOptions& options) {
  constexpr int kTries = 3;
  for (int attempt = 1;; ++attempt) {
    try {
      return train_in(storage, storage.folder().config(), options, attempt > 1);
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
void wait_for_the_first(const std::shared_ptr<World>& world) {
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
  if (error.kind() == ErrorKind::kBusy || (is_refusal && !storage.folder().session_log().is_open()))
    return;
  storage.folder().session_log().add("error", {{"message", error.what()}});
}

// Writes the exports of a finished run that are missing: kExitFinished if none is missing after it.
int write_exports(RunStorage& storage) {
  try {
    return write_missing_exports(storage.folder().config().args) ? kExitFinished : kExitFailed;
  } catch (const Interrupted&) {
    return kExitStoppedEarly;
  }
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
    if (options.world) check_same_folder(*options.world, storage.folder().config().args.output_dir);
    const int code = train_with_retries(storage, options);
    const bool is_finished = code == kExitFinished || code == kExitCheckpointsFailed;
    const int of_exports = is_finished && is_first ? write_exports(storage) : kExitFinished;
    const bool is_everywhere = storage.mirrors().finish(is_finished);
    trackers.write(storage, is_finished);
    if (!is_finished) wait_for_the_first(options.world);
    // With exit code 0 a user might delete the machine, and with it files that are only here.
    if (is_finished && !is_everywhere) return kExitFailed;
    return of_exports == kExitFinished ? code : of_exports;
  } catch (const Error& error) {
    note_error(storage, error);
    // Wait for the mirrors even after an error, so that earlier checkpoints reach them. If another
    // session owns the folder, write nothing.
    if (error.kind() != ErrorKind::kBusy) {
      (void)storage.mirrors().finish(false);
      trackers.write(storage, false);
    }
    throw;
  } catch (...) {
    (void)storage.mirrors().finish(false);
    throw;
  }
}

}  // namespace

int run_training(const LoadedConfig& config, const RunOptions& options) {
  return explaining_lack_of_memory(kMemoryAdvice, [&] { return train(config, options); });
}

nlohmann::ordered_json run_evaluation(const LoadedConfig& config, EvaluatedModel model,
                                      bool int8_products) {
  return explaining_lack_of_memory(kMemoryAdvice, [&] {
    return evaluate_model(config, {.train = false,
                                   .evaluate = true,
                                   .model_folder = evaluated_folder(config, model),
                                   .int8_products = int8_products});
  });
}

}  // namespace finetune
