// SPDX-License-Identifier: MIT
#include "finetune/task/predictor.h"

#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/model/model_folder.h"
#include "task/predictors.h"

namespace finetune {
namespace {

struct TaskName {
  std::string_view name;
  PredictTask task;
};

constexpr std::array<TaskName, 12> kNames = {
    {{"fill-mask", PredictTask::kFillMask},
     {"text-classification", PredictTask::kTextClassification},
     {"token-classification", PredictTask::kTokenClassification},
     {"question-answering", PredictTask::kQuestionAnswering},
     {"multiple-choice", PredictTask::kMultipleChoice},
     {"mlm", PredictTask::kFillMask},
     {"sequence_classification", PredictTask::kTextClassification},
     {"sentiment-analysis", PredictTask::kTextClassification},
     {"token_classification", PredictTask::kTokenClassification},
     {"ner", PredictTask::kTokenClassification},
     {"question_answering", PredictTask::kQuestionAnswering},
     {"multiple_choice", PredictTask::kMultipleChoice}}};

// How the names of transformers' classes end.
constexpr std::array<TaskName, 6> kArchitectures = {
    {{"ForMaskedLM", PredictTask::kFillMask},
     {"ForPreTraining", PredictTask::kFillMask},
     {"ForSequenceClassification", PredictTask::kTextClassification},
     {"ForTokenClassification", PredictTask::kTokenClassification},
     {"ForQuestionAnswering", PredictTask::kQuestionAnswering},
     {"ForMultipleChoice", PredictTask::kMultipleChoice}}};

constexpr char kNameTheTask[] =
    "; name the task with --task fill-mask, text-classification, token-classification, "
    "question-answering or multiple-choice";

}  // namespace

std::string_view predict_task_name(PredictTask task) {
  return kNames.at(static_cast<size_t>(task)).name;
}

PredictTask parse_predict_task(const std::string& name) {
  std::vector<std::string> known;
  for (const TaskName& task : kNames) {
    if (task.name == name) return task.task;
    known.emplace_back(task.name);
  }
  throw Error(ErrorKind::kUsage,
              "--task: there is no task '" + name + "'" + did_you_mean(name, known) + kNameTheTask);
}

PredictTask find_predict_task(const std::string& folder) {
  const std::string model = resolve_model_folder(folder, "MODEL_DIR");
  const std::string path = join_path(model, "config.json");
  if (!FileSystem::local().exists(path)) {
    throw Error(ErrorKind::kUsage, "'" + model +
                                       "' holds a tokenizer only, no model (config.json "
                                       "is missing); name a folder that save_pretrained "
                                       "or a run wrote");
  }
  const nlohmann::ordered_json config = read_json_file(path);
  const auto found = config.is_object() ? config.find("architectures") : config.end();
  if (found == config.end() || !found->is_array() || found->empty() || !(*found)[0].is_string()) {
    throw Error(ErrorKind::kData, path + ": architectures names no class" + kNameTheTask);
  }
  const auto& architecture = (*found)[0].get_ref<const std::string&>();
  for (const TaskName& task : kArchitectures) {
    if (architecture.ends_with(task.name)) return task.task;
  }
  throw Error(ErrorKind::kData, path + ": architectures: '" + architecture.substr(0, 80) +
                                    "' has none of the heads that predict knows" + kNameTheTask);
}

std::unique_ptr<Predictor> make_predictor(PredictTask task, const std::string& folder,
                                          const PredictOptions& options) {
  switch (task) {
    case PredictTask::kFillMask:
      return make_fill_mask(folder, options);
    case PredictTask::kTextClassification:
      return make_text_classification(folder, options);
    case PredictTask::kTokenClassification:
      return make_token_classification(folder, options);
    case PredictTask::kQuestionAnswering:
      return make_question_answering(folder, options);
    case PredictTask::kMultipleChoice:
      return make_multiple_choice(folder, options);
  }
  FT_CHECK(false, "a task without a predictor");
}

}  // namespace finetune
