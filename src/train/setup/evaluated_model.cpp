// SPDX-License-Identifier: MIT
#include "train/setup/evaluated_model.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/state/run_state.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/model_tensors.h"
#include "train/setup/memory_workload.h"

namespace finetune {
namespace {

// Returns the state of the finished run in `output_dir`, if there is a readable one.
std::optional<RunState> finished_run(const std::string& output_dir) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(output_dir, checkpoint::kFinetuneStateFile);
  if (!files.exists(path)) {
    if (checkpoint::recorded_file(files, output_dir, checkpoint::kFinetuneStateFile)) {
      throw Error(ErrorKind::kCheckpoint,
                  path +
                      ": is missing, though the manifest.json there lists it; run the command that "
                      "trained the model again, which restores it, or evaluate model_name_or_path "
                      "with --checkpoint base");
    }
    return std::nullopt;
  }
  RunState state = RunState::parse(files.read_all(path, 64 << 20), path);
  if (!state.finished) return std::nullopt;
  return state;
}

std::string newest_checkpoint(const std::string& output_dir, bool verify) {
  FileSystem& files = FileSystem::local();
  if (!files.exists(output_dir)) return "";
  std::string newest;
  for (const auto& entry : checkpoint::list_checkpoints(files, output_dir, verify)) {
    if (entry.whole) newest = entry.path;
  }
  return newest;
}

// Returns what a finished run recorded under `key`; empty if it is unset.
std::string recorded(const RunState& finished, const char* key) {
  const auto found = finished.config.find(key);
  return found != finished.config.end() && found->is_string() ? found->get<std::string>() : "";
}

// Finds the folder of the model to evaluate.
class EvaluatedFolder {
 public:
  explicit EvaluatedFolder(const LoadedConfig& config) : config_(config), args_(config.args) {}

  [[nodiscard]] std::string evaluated_folder(EvaluatedModel choice) const {
    // A model that the command line names has priority.
    const bool is_named = config_.where("model_name_or_path") == "command line";
    const bool may_use_run = choice == EvaluatedModel::kTrained && !is_named;
    std::optional<RunState> finished;
    if (may_use_run || choice == EvaluatedModel::kNewest) finished = finished_run(args_.output_dir);
    if (choice == EvaluatedModel::kNewest) return checkpoint_or_finished(finished);
    if (may_use_run && finished) return finished_folder(*finished);
    if (args_.model_name_or_path) {
      announce_base(may_use_run);
      return "";
    }
    if (may_use_run && !newest_checkpoint(args_.output_dir, false).empty()) {
      return checkpoint_or_finished(finished);  // there is no other model
    }
    refuse_key(config_, "model_name_or_path",
               "names the model to evaluate and is not set" +
                   (may_use_run ? ", and '" + args_.output_dir +
                                      "' holds no run; set it, or name the run's folder with "
                                      "output_dir"
                                : std::string("; set it")));
  }

 private:
  [[nodiscard]] std::string finished_folder(const RunState& finished) const {
    checkpoint::require_undamaged_model(FileSystem::local(), args_.output_dir);
    const std::string task = recorded(finished, "task");
    if (!task.empty() && task != args_.task) {
      refuse_key(config_, "output_dir",
                 "'" + args_.output_dir + "' holds a finished run of task '" + task +
                     "', the configuration asks for '" + args_.task +
                     "'; name that run's folder, or evaluate model_name_or_path with "
                     "--checkpoint base");
    }
    const std::string base = recorded(finished, "model_name_or_path");
    if (args_.model_name_or_path && !base.empty() && base != *args_.model_name_or_path) {
      log::warning("the finished run in '" + args_.output_dir + "' started from '" + base +
                   "', the configuration names '" + *args_.model_name_or_path +
                   "'; --checkpoint base evaluates that one");
    }
    log::info("evaluating the trained model in '" + args_.output_dir + "' (" +
              std::to_string(finished.step) + " steps)");
    return args_.output_dir;
  }

  [[nodiscard]] std::string checkpoint_or_finished(const std::optional<RunState>& finished) const {
    if (!FileSystem::local().exists(args_.output_dir)) {
      refuse_key(config_, "output_dir",
                 "there is no '" + args_.output_dir + "'; train first, or name the folder");
    }
    const std::string newest = newest_checkpoint(args_.output_dir, true);
    if (!newest.empty()) {
      log::info("evaluating the newest checkpoint '" + newest + "'");
      return newest;
    }
    if (finished) return finished_folder(*finished);
    throw Error(ErrorKind::kCheckpoint,
                args_.output_dir +
                    " holds no valid checkpoint and no finished model to evaluate; " +
                    "train first, or evaluate model_name_or_path with --checkpoint base");
  }

  void announce_base(bool may_use_run) const {
    const std::string newest = may_use_run ? newest_checkpoint(args_.output_dir, false) : "";
    log::info("evaluating model_name_or_path, '" + *args_.model_name_or_path + "'" +
              (newest.empty() ? ""
                              : "; the run in '" + args_.output_dir +
                                    "' is not finished: --checkpoint auto evaluates its newest "
                                    "checkpoint, " +
                                    file_name(newest)));
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
};

}  // namespace

std::string evaluated_folder(const LoadedConfig& config, EvaluatedModel choice) {
  return EvaluatedFolder(config).evaluated_folder(choice);
}

void check_head(const LoadedConfig& config, const std::string& folder, const ModelConfig& model) {
  const std::optional<Head> head = task_of(config.args.task).head(config.args);
  if (predicts_words(head)) return;
  const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder);
  std::string missing;
  for (const ParameterShape& parameter : parameter_shapes(model, head)) {
    const bool is_head =
        parameter.name.starts_with("classifier") || parameter.name.starts_with("qa_");
    if (!is_head || parameter.is_base || tensors.has(parameter.name)) continue;
    missing += (missing.empty() ? "" : ", ") + parameter.name;
  }
  if (missing.empty()) return;
  refuse_key(config, "model_name_or_path",
             "'" + folder + "' lacks the head of task '" + config.args.task + "' (" + missing +
                 "); it was not trained for task '" + config.args.task +
                 "': train it first, or name the folder of a model that was");
}

}  // namespace finetune
