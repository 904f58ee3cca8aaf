// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/load.h"
#include "finetune/data/collate.h"
#include "finetune/data/columns.h"
#include "finetune/data/data_record.h"
#include "finetune/data/loader.h"
#include "finetune/data/mixed_dataset.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_cache.h"
#include "finetune/model/model.h"
#include "finetune/report/progress.h"
#include "finetune/task/metrics.h"
#include "finetune/task/prediction_files.h"
#include "finetune/task/task.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

enum class Split { kTrain, kValidation, kTest };

// What a task is set up from; setups keep a copy. References outlive them.
struct SetupContext {
  const LoadedConfig& config;
  const Tokenizer& tokenizer;
  ModelConfig model;      // as the model's folder or the keys say, before the data are known
  bool model_is_trained;  // `model` is a folder's, so that its labels mean something
  ProgressDisplay& progress;
  // Not null: the index of the train_file entry that read(kTrain) reads; nullopt: all. Labels are
  // those of all entries. The code that mixes entries increments it.
  std::shared_ptr<const std::optional<size_t>> entry = nullptr;
  TokenCacheOptions cache = {};
  // What the model was trained with, where nothing is trained now.
  DataRecord trained = {};
};

// What one kind of work brings to a run: how its rows are read, which head learns from them, what
// is measured and written. read() is called before what depends on it,
// kTrain first where there is training.
class TaskSetup {
 public:
  virtual ~TaskSetup() = default;

  // Throws Error(kData | kConfig) and Interrupted.
  [[nodiscard]] virtual std::shared_ptr<const Dataset> read(Split split) = 0;
  [[nodiscard]] virtual std::shared_ptr<const Collator> make_collator() const = 0;
  // Tokens that several training samples may fill a row with; 0: a row is a sample.
  [[nodiscard]] virtual int64_t packed_length() const { return 0; }

  // The training data where train_file's entries are mixed by weight.
  [[nodiscard]] virtual std::shared_ptr<const Dataset> mix(
      std::shared_ptr<const MixedDataset> data) const {
    return data;
  }
  // Called once with all that read(kTrain) gave: what the loss needs to know of the data.
  virtual void learn_from(const Dataset& /*train_data*/) {}
  // What the training data told, to be kept with the model; empty where there is nothing to keep.
  [[nodiscard]] virtual DataRecord record() const { return {}; }
  // The configuration with the labels that were found in the data.
  [[nodiscard]] virtual ModelConfig complete(ModelConfig model) const { return model; }
  struct Learner {
    std::unique_ptr<Model> model;
    std::unique_ptr<Task> task;  // of that model
  };
  [[nodiscard]] virtual Learner make_learner(const ModelConfig& model, c10::Device device,
                                             const ModelOptions& options) const = 0;

  // What one pass over a split measures and, where asked for, writes.
  struct Results {
    std::unique_ptr<Metrics> metrics;
    std::unique_ptr<PredictionFiles> files;  // null: nothing is written
  };
  [[nodiscard]] virtual Results make_results(Split split) const = 0;
};

// The setup of config's task. Throws Error(kConfig) where tokenizer and model do not fit the task.
[[nodiscard]] std::unique_ptr<TaskSetup> make_task_setup(const SetupContext& context);

// Shared by the setups.

// max_seq_length, or `otherwise`; never beyond what the model's positions allow.
[[nodiscard]] int64_t sequence_length(const SetupContext& context, int64_t otherwise);
[[nodiscard]] int64_t preprocessing_threads(const TrainingArgs& args);
[[nodiscard]] bool replaces_broken_utf8(const TrainingArgs& args);
// delimiter, quoting and header; text whose lines hold tags is CoNLL where words are tagged.
[[nodiscard]] ReadingOptions reading_options(const TrainingArgs& args);
// How training samples are streamed; nothing where they are read beforehand. `longest`: tokens of a
// sample.
[[nodiscard]] std::optional<StreamOptions> stream_options(const SetupContext& context, Split split,
                                                          int64_t longest);
// Says so of a stream, whose samples are not counted. False for other data.
[[nodiscard]] bool announce_stream(const TrainingArgs& args, const std::string& what,
                                   const Dataset& data);
// The files of a split and the key that names them. Throws Error(kConfig) where there are none.
struct SplitFiles {
  std::vector<std::string> files;
  std::string key;
  std::optional<int64_t> max_samples;
  std::string what;  // "training"
};
[[nodiscard]] SplitFiles split_files(const LoadedConfig& config, Split split);
// Those of them that are read now: of a mixture's, one entry's.
[[nodiscard]] SplitFiles files_to_read(const SetupContext& context, Split split);
// Shows data/'s steps that nobody else shows. `progress` must outlive it.
[[nodiscard]] ShowStep show_steps(ProgressDisplay& progress);
// Shows the progress of reading `files` while `build` runs with a callback for it. `phase` says
// what for.
void show_reading(ProgressDisplay& progress, const SplitFiles& files,
                  const std::function<void(const std::function<void(double)>&)>& build,
                  const std::string& phase = "tokenise");

}  // namespace finetune
