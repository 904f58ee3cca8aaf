// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/tasks.h"
#include "finetune/data/columns.h"
#include "finetune/data/data_record.h"
#include "finetune/model/model.h"

namespace finetune {

class Predictor;
class TaskSetup;
struct Batch;
struct PredictOptions;
struct SetupContext;

// A Python library that reads a task's models, and how it makes one of a folder.
struct PythonLibrary {
  std::string_view name = {};
  std::string_view import_line = {}, callable = {};  // "import laya", "laya.load"
  std::string_view arguments = {};                   // before the folder: "\"decision\", model="
  std::string_view adapter_argument = {};            // and the folder again, of an adapter's
};

// How `finetune predict` uses a model of a task.
struct Pipeline {
  std::string_view name;                       // transformers' pipeline: "fill-mask"
  std::vector<std::string_view> aliases = {};  // alternative names
  std::string_view class_suffix;       // ending of the architecture in config.json: "ForMaskedLM"
  std::string_view other_suffix = {};  // another ending that some families have; empty: none
  bool has_peft_class = true;          // whether PEFT has AutoPeftModel with the ending
  // What reads the folder of a run with these keys, if not transformers' AutoModel classes.
  PythonLibrary (*library)(const TaskArgs& args) = nullptr;
  // Throws Error(kConfig | kData) if the folder has no usable model of the task or no tokenizer,
  // Error(kUsage) for an invalid option.
  std::unique_ptr<Predictor> (*make_predictor)(const std::string& folder,
                                               const PredictOptions& options);
};

// Python that makes a model of a folder.
[[nodiscard]] std::string library_call(const PythonLibrary& library, const std::string& folder,
                                       bool is_adapter);

// The program's interface to a task: its entry in the table of tasks (src/task/tasks.cpp).
// docs/extending.md describes how to add one.
struct TaskDescriptor {
  const TaskKeys& keys;  // name, help, keys of the task
  RowTask rows;          // content of the rows: which columns to look for
  // Returns the head to train; nullopt: the language model's.
  std::optional<Head> (*head)(const TaskArgs& args);
  std::unique_ptr<TaskSetup> (*make_setup)(const SetupContext& context);
  Pipeline pipeline;

  // Targets are words: labels are shown as tokens, and ranks exchange only the most probable id
  // instead of logits over the vocabulary.
  bool learns_words = false;
  bool learns_next_words = false;      // the label of a token is the next token
  bool compares_sequences = false;     // the loss compares the probabilities of whole sequences
  bool reads_all_tokens = false;       // the loss has a target at (almost) each token
  bool pads = true;                    // samples of unequal length require a pad token
  bool logs_tokens = false;            // the log contains the number of tokens trained on
  bool reports_perplexity = false;     // exp(eval_loss)
  std::string_view sample = "sample";  // what messages call a sample: "question"
  // Text shown for the class of a sample; unset: the label's name.
  std::string (*class_text)(int64_t label) = nullptr;
  // Text shown for the targets of a row of a batch; unset: by what the batch has.
  std::string (*target_text)(const Batch& batch, int64_t row) = nullptr;
};

// Returns all tasks, in the order of all_task_keys().
[[nodiscard]] const std::vector<const TaskDescriptor*>& all_tasks();

// Returns the task of this value of the key 'task', or nullptr.
[[nodiscard]] const TaskDescriptor* find_task(std::string_view name);

// The same of a configuration that was loaded, which has a valid one.
[[nodiscard]] const TaskDescriptor& task_of(std::string_view name);

// Registers a task that is not built in, and its keys; see add_task_keys().
void add_task(const TaskDescriptor& task);

// Returns the record of the model in `folder` if it was trained on such rows, else an empty one.
// Throws Error(kData) if the record is damaged.
[[nodiscard]] DataRecord trained_record(const std::string& folder, RowTask rows);

}  // namespace finetune
