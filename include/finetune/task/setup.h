// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/chat/chat_template.h"
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
#include "finetune/task/task_options.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

struct PaddingOptions;

enum class Split { kTrain, kValidation, kTest };

// The inputs of a task's setup, which copies this struct; what it refers to must outlive the setup.
struct SetupContext {
  TaskOptions options;
  const Tokenizer& tokenizer;
  ModelConfig model;      // from the model's folder or the keys, before the data is read
  bool model_is_trained;  // `model` comes from a folder, so its labels are meaningful
  ProgressDisplay& progress;
  // If not null: the index of the train_file entry that read(kTrain) reads (nullopt: all entries).
  // Labels are those of all entries. The code that mixes entries increments it.
  std::shared_ptr<const std::optional<size_t>> entry = nullptr;
  TokenCacheOptions cache = {};
  // If nothing is trained now: the data record of the model.
  DataRecord trained = {};
  // For chat data; null: there is none.
  std::shared_ptr<const chat::ChatTemplate> chat_template = nullptr;
  std::string model_folder = {};  // of the starting model; empty: a new one
  bool trains = true;             // false: a model is evaluated as it is
  bool few_lengths = false;       // the device compiles operators for shapes (device.h)
  std::string chat_date = {};     // "2026-07-05": the day of the run's first session
};

// The parts of a run that depend on the task: reading rows, the head that is trained, metrics and
// result files. read() is called before the members that depend on its data, and for kTrain first
// if the run trains.
class TaskSetup {
 public:
  virtual ~TaskSetup() = default;

  // Throws Error(kData | kConfig) and Interrupted.
  [[nodiscard]] virtual std::shared_ptr<const Dataset> read(Split split) = 0;
  [[nodiscard]] virtual std::shared_ptr<const Collator> make_collator() const = 0;
  // Tokens of a row that several training samples may share; 0: one sample per row.
  [[nodiscard]] virtual int64_t packed_length() const { return 0; }

  // Tokens to which longer samples are truncated; 0: none is.
  [[nodiscard]] virtual int64_t truncation_length() const { return 0; }

  // Returns the training data if train_file's entries are mixed by weight.
  [[nodiscard]] virtual std::shared_ptr<const Dataset> mix(
      std::shared_ptr<const MixedDataset> data) const {
    return data;
  }
  // Called once with all data that read(kTrain) returned: derives what the loss needs from it.
  virtual void learn_from(const Dataset& /*train_data*/) {}
  // Returns properties of the training data that are stored with the model; empty if there are
  // none.
  [[nodiscard]] virtual DataRecord record() const { return {}; }
  // Returns files that go with every saved model, in place of those of the starting model with the
  // same names. `of_start`: the latter.
  using Files = std::vector<std::pair<std::string, std::string>>;  // name, content
  [[nodiscard]] virtual Files model_files(const Files& /*of_start*/) const { return {}; }
  // Returns those of them that the finished model has in another form, by what its evaluation
  // found: a temperature. `metrics`: with their prefix, "eval_...".
  [[nodiscard]] virtual Files calibrated_files(const nlohmann::ordered_json& metrics) const;
  // Returns the configuration with the labels found in the data.
  [[nodiscard]] virtual ModelConfig complete(ModelConfig model) const { return model; }
  struct Learner {
    std::unique_ptr<Model> model;
    std::unique_ptr<Task> task;  // of that model
  };
  [[nodiscard]] virtual Learner make_learner(const ModelConfig& model, c10::Device device,
                                             const ModelOptions& options) const = 0;

  // Returns answers of the model to fixed questions of the validation data, an object for each;
  // none if the keys do not ask for them. `of_start`: as above. Throws Interrupted.
  [[nodiscard]] virtual std::vector<nlohmann::ordered_json> generate_samples(
      Model& /*model*/, c10::Device /*device*/, const Files& /*of_start*/) const;

  // The metrics of one pass over a split and, where requested, the files it writes.
  struct Results {
    std::unique_ptr<Metrics> metrics;
    std::unique_ptr<PredictionFiles> files;  // null: nothing is written
  };
  [[nodiscard]] virtual Results make_results(Split split) const = 0;
  // Returns the folders of other models whose weights the loss depends on.
  [[nodiscard]] virtual std::vector<std::string> guides() const { return {}; }
  // Whether the loss compares with values of the starting model that are computed before the first
  // step (Task::reference()).
  [[nodiscard]] virtual bool needs_reference() const { return false; }
  // Whether the samples of a split that was read have a loss.
  [[nodiscard]] virtual bool has_loss(Split /*split*/) const { return true; }
};

// Returns the setup of config's task. Throws Error(kConfig) if tokenizer or model does not fit the
// task.
[[nodiscard]] std::unique_ptr<TaskSetup> make_task_setup(const SetupContext& context);

// Helpers shared by the setups.

// Returns max_seq_length, or `otherwise` if unset; at most the model's maximum length.
[[nodiscard]] int64_t sequence_length(const SetupContext& context, int64_t otherwise);
// Sets to which lengths rows are padded: by pad_to_max_length, and with few lengths to multiples of
// a third of the longest.
void set_lengths(PaddingOptions& options, const SetupContext& context, int64_t longest);
[[nodiscard]] int64_t preprocessing_threads(const DataArgs& args);
[[nodiscard]] bool replaces_broken_utf8(const DataArgs& args);
// Returns delimiter, quoting and header; for word tagging, text files with tags are read as CoNLL.
[[nodiscard]] ReadingOptions reading_options(const TaskOptions& args);
// Returns how training samples are streamed; nullopt if they are read beforehand. `longest`: tokens
// per sample.
[[nodiscard]] std::optional<StreamOptions> stream_options(const SetupContext& context, Split split,
                                                          int64_t longest);
// Prints that the data are streamed, so the number of samples is unknown. Returns false, printing
// nothing, for other data.
[[nodiscard]] bool announce_stream(const TaskOptions& args, const std::string& what,
                                   const Dataset& data);
// The files of a split and the key that names them. Throws Error(kConfig) if there are none.
struct SplitFiles {
  std::vector<std::string> files;
  std::string key;
  std::optional<int64_t> max_samples;
  std::string what;  // "training"
};
[[nodiscard]] SplitFiles split_files(const TaskOptions& options, Split split);
// Returns the files that are read now: for a mixture, those of one entry.
[[nodiscard]] SplitFiles files_to_read(const SetupContext& context, Split split);
// Shows steps of data/ that have no other progress display. `progress` must outlive the result.
[[nodiscard]] ShowStep show_steps(ProgressDisplay& progress);
// Runs `build` with a callback for progress, and shows the progress of reading `files` as `phase`.
void show_reading(ProgressDisplay& progress, const SplitFiles& files,
                  const std::function<void(const std::function<void(double)>&)>& build,
                  const std::string& phase = "tokenise");

}  // namespace finetune
