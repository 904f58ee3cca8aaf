// SPDX-License-Identifier: MIT
#include "finetune/state/standard_parts.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/model/model_folder.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/parameter_files.h"
#include "finetune/state/scaler_file.h"
#include "finetune/state/scheduler_file.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/safetensors.h"

namespace finetune {
namespace {

using checkpoint::CheckpointFile;

constexpr char kNotExact[] = "not bit-exact from here: ";

// Logs what was converted on restore, and whether all values are still the same.
void log_conversion(bool exact, const std::string& line) {
  if (exact) {
    log::info(line);
  } else {
    log::warning(kNotExact + line);
  }
}

CheckpointFile torch_file(std::string name, TorchValue value) {
  return {.name = std::move(name), .write = [value = std::move(value)](WritableFile& file) {
            write_torch_file(file, value);
          }};
}

class ModelPart : public CheckpointPart {
 public:
  ModelPart(Model& model, const ModelConfig& config, StateGather* gather)
      : model_(model), config_(config), gather_(gather) {}

  std::vector<CheckpointFile> save(const SaveScope& scope) override {
    const LazyTensors tensors = weights(scope.kind, scope.snapshot);
    std::vector<CheckpointFile> files;
    std::vector<ModelShard> shards;
    if (model_.config().lora) {  // the base stays in its folder
      files = {checkpoint::text_file(kAdapterConfigFile, adapter_config_json(model_))};
      shards = plan_shards(of_adapter(tensors), std::numeric_limits<uint64_t>::max());
      shards.front().file_name = kAdapterFile;
    } else {
      const bool is_bfloat16 = !tensors.empty() && tensors.front().type == at::kBFloat16;
      files = {checkpoint::text_file(
          checkpoint::kConfigFile,
          model_config_json(config_, model_.architecture(), is_bfloat16 ? "bfloat16" : "float32"))};
      shards = plan_shards(tensors);
    }
    for (const ModelShard& shard : shards) {
      files.push_back({shard.file_name,
                       [shard](WritableFile& file) { write_safetensors(file, shard.tensors); }});
    }
    if (const auto index = model_.config().lora ? std::nullopt : make_shard_index(shards)) {
      files.push_back(checkpoint::text_file(kModelIndexFile, *index));
    }
    return files;
  }

  [[nodiscard]] uint64_t bytes(SaveKind kind) const override {
    uint64_t bytes = 0;
    for (const LazyTensor& tensor : weights(kind, nullptr)) bytes += tensor.bytes();
    return bytes;
  }

  void load(const SavedFolder& folder) override {
    if (!folder.is_foreign) {
      const RestoredParameters read = restore_parameters(model_.store(), folder.files, folder.path,
                                                         stored_names(model_.config()));
      if (!read.line.empty()) log_conversion(read.exact, read.line);
      return;
    }
    // The run's base is loaded; the folder may name another location of it.
    if (model_.config().lora) return load_trained_adapter(model_, folder.path);
    // Accepts the names of any version of transformers.
    const LoadReport report = load_folder_weights(model_, folder.path);
    if (report.missing.empty()) return;
    throw Error(ErrorKind::kCheckpoint, folder.path + ": its weights lack " +
                                            listed(report.missing) +
                                            "; it is the checkpoint of another kind of model");
  }

  [[nodiscard]] std::string restored() const override {
    int64_t values = 0;
    for (const Weight& weight : model_.weights()) values += weight.numel();
    return format_text("weights ({} values)", values);
  }

 private:
  // The tensors under PEFT's names.
  LazyTensors of_adapter(const LazyTensors& trained) const {
    const AdapterNames names(model_);
    LazyTensors tensors;
    for (const LazyTensor& tensor : trained) {
      for (std::string& name : names.of(tensor.name)) {
        tensors.push_back(tensor);
        tensors.back().name = std::move(name);
      }
    }
    return tensors;
  }

  // The corrections of split weights are in the optimizer's file; if that is not saved, the weights
  // are joined when they are written.
  [[nodiscard]] LazyTensors weights(SaveKind kind, Snapshot* snapshot) const {
    const ParameterStore& store = model_.store();
    const bool joins = kind == SaveKind::kModel || (kind == SaveKind::kWithoutOptimizer &&
                                                    store.weight_format() == WeightFormat::kSplit);
    return joins ? exported_tensors(store, gather_) : checkpoint_tensors(store, snapshot, gather_);
  }

  Model& model_;
  const ModelConfig& config_;
  StateGather* gather_;
};

class TextPart : public CheckpointPart {
 public:
  explicit TextPart(std::function<TextFiles()> files) : files_(std::move(files)) {}

  std::vector<CheckpointFile> save(const SaveScope&) override {
    std::vector<CheckpointFile> files;
    for (auto& [name, content] : files_()) {
      files.push_back(checkpoint::text_file(name, std::move(content)));
    }
    return files;
  }

  [[nodiscard]] uint64_t bytes(SaveKind) const override {
    uint64_t bytes = 0;
    for (const auto& [name, content] : files_()) bytes += content.size();
    return bytes;
  }

 private:
  std::function<TextFiles()> files_;
};

class OptimizerPart : public CheckpointPart {
 public:
  OptimizerPart(Optimizer& optimizer, const RateSource& rates, StateGather* gather)
      : optimizer_(optimizer), rates_(rates), gather_(gather) {}

  std::vector<CheckpointFile> save(const SaveScope& scope) override {
    if (scope.kind != SaveKind::kCheckpoint) return {};
    log_once_what_transformers_cannot_read();
    return optimizer_checkpoint_files(
        optimizer_,
        {.learning_rate = rates_.schedule->learning_rate(rates_.state.updates),
         .initial_learning_rate = rates_.initial_learning_rate},
        scope.snapshot, gather_);
  }

  [[nodiscard]] uint64_t bytes(SaveKind kind) const override {
    return kind == SaveKind::kCheckpoint ? optimizer_file_bytes(optimizer_) : 0;
  }

  void load(const SavedFolder& folder) override {
    const RestoredOptimizer read = restore_optimizer(optimizer_, folder.files, folder.path);
    was_found_ = read.found;
    if (!read.found) {
      log::warning(kNotExact + folder.path +
                   " was saved with save_only_model, the optimizer starts fresh");
    }
    for (const std::string& line : read.lines) log_conversion(read.exact, line);
  }

  [[nodiscard]] std::string restored() const override {
    if (!was_found_) return "";
    std::vector<std::string> kinds;
    for (const ParameterGroup& group : optimizer_.groups()) {
      const std::string& kind = group.options.kind;
      if (!group.parameters.empty() && std::ranges::find(kinds, kind) == kinds.end()) {
        kinds.push_back(kind);
      }
    }
    return format_text("optimizer ({}, {} updates)", join(kinds, " and "), rates_.state.updates);
  }

 private:
  // Logs once that resuming with transformers would lose the states.
  void log_once_what_transformers_cannot_read() {
    if (is_announced_ || transformers_reads_states(optimizer_)) return;
    is_announced_ = true;
    log::info("the optimizer's states go to " + std::string(checkpoint::kOptimizerTensorsFile) +
              ", which transformers' Trainer does not read: it would start a fresh optimizer");
  }

  Optimizer& optimizer_;
  RateSource rates_;
  StateGather* gather_;
  bool was_found_ = false;
  bool is_announced_ = false;
};

class ScalerPart : public CheckpointPart {
 public:
  explicit ScalerPart(std::optional<LossScaler>& scaler) : scaler_(scaler) {}

  std::vector<CheckpointFile> save(const SaveScope& scope) override {
    if (!scaler_ || scope.kind != SaveKind::kCheckpoint) return {};
    return {torch_file(checkpoint::kScalerFile, scaler_to_torch(*scaler_))};
  }

  void load(const SavedFolder& folder) override {
    if (!scaler_) return;
    const std::string path = join_path(folder.path, checkpoint::kScalerFile);
    if (folder.files.exists(path)) {
      scaler_from_torch(*scaler_, read_torch_file(folder.files, path), path);
    } else {
      log::warning(kNotExact + folder.path + " has no " + std::string(checkpoint::kScalerFile) +
                   ", the loss scale starts at " + format_double(scaler_->scale()));
    }
  }

  [[nodiscard]] std::string restored() const override {
    return scaler_ ? "loss scale (" + format_double(scaler_->scale()) + ")" : "";
  }

 private:
  std::optional<LossScaler>& scaler_;
};

class SchedulePart : public CheckpointPart {
 public:
  SchedulePart(const Optimizer& optimizer, const RateSource& rates) : rates_(rates) {
    for (const ParameterGroup& group : optimizer.groups()) {
      factors_.push_back(group.learning_rate_factor);
    }
  }

  std::vector<CheckpointFile> save(const SaveScope& scope) override {
    if (scope.kind != SaveKind::kCheckpoint) return {};
    const Schedule& schedule = *rates_.schedule;
    return {torch_file(
        checkpoint::kSchedulerFile,
        schedule.follows_metric()
            ? metric_schedule_to_torch(schedule.state(), factors_)
            : scheduler_to_torch(rates_.state.updates, rates_.initial_learning_rate,
                                 schedule.learning_rate(rates_.state.updates), factors_))};
  }

  void load(const SavedFolder& folder) override {
    if (!folder.is_foreign) return rates_.schedule->load_state(rates_.state.schedule);
    const std::string path = join_path(folder.path, checkpoint::kSchedulerFile);
    if (!rates_.schedule->follows_metric() || !folder.files.exists(path)) return;
    const auto state = metric_schedule_from_torch(read_torch_file(folder.files, path), path);
    if (state) rates_.schedule->load_state(*state);
  }

 private:
  RateSource rates_;
  std::vector<double> factors_;  // of the learning rate, by group
};

class TrainerStatePart : public CheckpointPart {
 public:
  explicit TrainerStatePart(TrainerState& state) : state_(state) {}

  std::vector<CheckpointFile> save(const SaveScope&) override {
    return {checkpoint::text_file(checkpoint::kTrainerStateFile, state_.to_text())};
  }

  void load(const SavedFolder& folder) override {
    const std::string path = join_path(folder.path, checkpoint::kTrainerStateFile);
    state_ = TrainerState::from_text(folder.files.read_all(path), path);
  }

 private:
  TrainerState& state_;
};

class RunStatePart : public CheckpointPart {
 public:
  explicit RunStatePart(RunState& state) : state_(state) {}

  std::vector<CheckpointFile> save(const SaveScope&) override {
    return {checkpoint::text_file(checkpoint::kFinetuneStateFile, state_.to_text())};
  }

  void load(const SavedFolder& folder) override {
    if (folder.is_foreign) return;
    const std::string path = join_path(folder.path, checkpoint::kFinetuneStateFile);
    state_ = RunState::parse(folder.files.read_all(path), path);
  }

 private:
  RunState& state_;
};

}  // namespace

std::shared_ptr<CheckpointPart> model_part(Model& model, const ModelConfig& config,
                                           StateGather* gather) {
  return std::make_shared<ModelPart>(model, config, gather);
}

std::shared_ptr<CheckpointPart> text_part(std::function<TextFiles()> files) {
  return std::make_shared<TextPart>(std::move(files));
}

std::shared_ptr<CheckpointPart> optimizer_part(Optimizer& optimizer, const RateSource& rates,
                                               StateGather* gather) {
  return std::make_shared<OptimizerPart>(optimizer, rates, gather);
}

std::shared_ptr<CheckpointPart> scaler_part(std::optional<LossScaler>& scaler) {
  return std::make_shared<ScalerPart>(scaler);
}

std::shared_ptr<CheckpointPart> schedule_part(const Optimizer& optimizer, const RateSource& rates) {
  return std::make_shared<SchedulePart>(optimizer, rates);
}

std::shared_ptr<CheckpointPart> trainer_state_part(TrainerState& state) {
  return std::make_shared<TrainerStatePart>(state);
}

std::shared_ptr<CheckpointPart> run_state_part(RunState& state) {
  return std::make_shared<RunStatePart>(state);
}

}  // namespace finetune
