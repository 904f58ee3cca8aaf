// SPDX-License-Identifier: MIT
#include "train/save/model_card.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/report/figure_text.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMark[] = "<!-- written by finetune; set model_card: false to keep your own -->";
constexpr uint64_t kMostCardBytes = uint64_t{1} << 20;

// A JSON string is a double-quoted YAML string.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_measure(const std::string& key, const Json& value) {
  return value.is_number() && key.starts_with("eval_") && !key.ends_with("_runtime") &&
         !key.ends_with("_per_second") && key != "eval_samples";
}

// Whether the name is a hub's, "roberta-base" or "org/name"; local folders are meaningless
// elsewhere.
bool is_hub_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~') {
    return false;
  }
  return std::count(name.begin(), name.end(), '/') <= 1 &&
         FileSystem::local().type(name) == FileType::kMissing;
}

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(file_name(path));
  return names;
}

std::string library_of(const TrainingArgs& args) {
  const Pipeline& pipeline = task_of(args.task).pipeline;
  if (pipeline.library != nullptr) return std::string(pipeline.library(args).name);
  return args.use_peft ? "peft" : "transformers";
}

std::string metadata(const TrainingRun& run, const Json& evaluation) {
  const TrainingArgs& args = run.args;
  const Pipeline& pipeline = task_of(args.task).pipeline;
  std::string text = "---\nlibrary_name: " + library_of(args) + "\n";
  if (!pipeline.name.empty()) text += "pipeline_tag: " + std::string(pipeline.name) + "\n";
  if (args.model_name_or_path && is_hub_name(*args.model_name_or_path)) {
    text += "base_model: " + quoted(*args.model_name_or_path) + "\n";
  }
  text += "tags:\n- finetune\n- " + quoted(args.task) + "\n";
  std::string metrics;
  std::string results;
  for (const auto& [key, value] : evaluation.items()) {
    if (!is_measure(key, value)) continue;
    const std::string name = key.substr(5);
    if (name != "loss") metrics += "- " + quoted(name) + "\n";
    results += "    - type: " + quoted(name) + "\n      name: " + quoted(key) +
               "\n      value: " + format_double(value.get<double>()) + "\n";
  }
  if (!metrics.empty()) text += "metrics:\n" + metrics;
  if (!results.empty() && !pipeline.name.empty()) {
    const std::string data =
        args.validation_file.empty() ? "validation split" : file_name(args.validation_file.front());
    text += "model-index:\n- name: " + quoted(file_name(run.storage.folder().shown())) +
            "\n  results:\n  - task:\n      type: " + std::string(pipeline.name) +
            "\n    dataset:\n      name: " + quoted(data) + "\n      type: " + quoted(data) +
            "\n    metrics:\n" + results;
  }
  return text + "---\n";
}

std::string results_table(const Json& evaluation) {
  std::string text;
  for (const auto& [key, value] : evaluation.items()) {
    if (!is_measure(key, value)) continue;
    text += "| " + key + " | " + figure_text(value.get<double>()) + " |\n";
  }
  if (text.empty()) return "";
  return "\n## Evaluation\n\n| metric | value |\n| --- | --- |\n" + text;
}

std::string hyperparameters(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  const std::string precision = args.bf16 ? "bf16" : args.fp16 ? "fp16" : "float32";
  return "\n## Training\n\n" +
         format_text("- steps: {} ({} epochs)\n", run.state.step,
                     format_number("%.2f", run.epoch())) +
         "- learning rate: " + format_double(args.learning_rate) + ", " + args.lr_scheduler_type +
         format_text(", {} warm-up steps\n", run.plan.warmup_steps) +
         format_text("- batch: {} samples a step\n", run.state.effective_batch_size) +
         "- optimizer: " + args.optim + ", weight decay " + format_double(args.weight_decay) +
         "\n- precision: " + precision + format_text("\n- seed: {}\n", args.seed) +
         "- training data: " + join(names_of(args.train_file)) + "\n";
}

std::string usage(const TrainingRun& run) {
  const Pipeline& pipeline = task_of(run.args.task).pipeline;
  if (pipeline.class_suffix.empty()) return "";
  if (pipeline.library != nullptr) {
    const PythonLibrary library = pipeline.library(run.args);
    return "\n## Use\n\n```python\n" + std::string(library.import_line) +
           "\n\nmodel = " + library_call(library, "PATH", run.args.use_peft) + "\n```\n";
  }
  const LoadingClass loads = loading_class(run);
  const std::string whole = "AutoModel" + loads.ending;
  std::string imports = "from transformers import AutoTokenizer, " + whole;
  std::string model = whole + ".from_pretrained(\"PATH\")";
  if (loads.has_peft_class) {
    const std::string name = "AutoPeftModel" + loads.ending;
    imports = "from peft import " + name + "\nfrom transformers import AutoTokenizer";
    model = name + ".from_pretrained(\"PATH\")";
  } else if (run.args.use_peft) {
    imports = "from peft import PeftModel\nfrom transformers import " + whole + ", AutoTokenizer";
    model = "PeftModel.from_pretrained(" + whole + ".from_pretrained(\"BASE\"), \"PATH\")";
  }
  return "\n## Use\n\n```python\n" + imports +
         "\n\ntokenizer = AutoTokenizer.from_pretrained(\"PATH\")\nmodel = " + model + "\n```\n";
}

}  // namespace

std::string model_card(const TrainingRun& run, const Json& metrics) {
  // Sorted by name, because the log of a resumed run has another order.
  const Json evaluation = nlohmann::json(metrics);
  const TrainingArgs& args = run.args;
  const std::string base = args.model_name_or_path
                               ? "fine-tuned from " + file_name(*args.model_name_or_path)
                               : "trained from scratch (" + args.model_type.value_or("") + ")";
  return metadata(run, evaluation) + kMark + "\n\n# " + file_name(run.storage.folder().shown()) +
         "\n\nA model for " + args.task + ", " + base + ".\n" + results_table(evaluation) +
         hyperparameters(run) + usage(run) + "\n## Versions\n\n- finetune " +
         run.state.environment.finetune_version + "\n- torch " +
         run.state.environment.torch_version + "\n";
}

bool may_write_model_card(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kModelCardFile);
  try {
    if (files.type(path) == FileType::kMissing) return true;
    return files.read_all(path, kMostCardBytes).find(kMark) != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace finetune
