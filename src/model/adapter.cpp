// SPDX-License-Identifier: MIT
#include "finetune/model/adapter.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/tensor/model_tensors.h"
#include "model/adapter_files.h"
#include "model/backbone_with_head.h"

namespace finetune {

std::vector<std::string> output_modules(const ModelConfig& config, std::optional<Head> head) {
  if (predicts_words(head) || head == Head::kEmbedding) return {};
  if (head == Head::kMultipleChoice) return {"classifier"};
  if (head != Head::kQuestionAnswering) return {"classifier", "score"};
  // ModernBERT's output layer has another name than PEFT expects; PEFT would give it an adapter.
  if (config.model_type == "modernbert") return {"classifier", "qa_outputs"};
  return {"qa_outputs"};
}

std::vector<std::string> missing_in_base(const ModelConfig& config, std::optional<Head> head,
                                         const std::string& base) {
  const ModelConfig own = config_for(head, config);
  const ModelParts parts = make_parts(own, head);
  std::vector<std::string> names;
  const ModelTensors tensors =
      load_model_tensors(FileSystem::local(), base, /*maps=*/false, stored_names(own));
  for (const TensorInfo& info : tensors.tensors()) names.push_back(info.name);
  std::vector<std::string> missing = missing_weights(own, parts.weights, names);
  std::set<std::string> trained;
  for (const Weight& weight : parts.weights) {
    if (parts.is_trained[weight.id()]) trained.insert(weight.name());
  }
  std::erase_if(missing, [&](const std::string& name) { return trained.contains(name); });
  return missing;
}

void read_recorded_labels(const std::string& folder, ModelConfig& config) {
  const std::string path = join_path(folder, kFinetuneStateFile);
  if (FileSystem::local().exists(path)) {
    const nlohmann::ordered_json state =
        read_json_file(path, ErrorKind::kData, {.max_bytes = 64 << 20, .allow_nan = true});
    const auto found = state.find("identity_model");
    if (found != state.end() && found->is_string()) {
      const ModelConfig trained =
          parse_model_config(parse_json(found->get<std::string>(), path), path);
      config.id2label = trained.id2label;
      config.problem_type = trained.problem_type;
      return;
    }
  }
  // PEFT records no labels: their number is that of the output layer's rows.
  const std::string architecture = adapter_architecture(folder);
  if (architecture != "ForSequenceClassification" && architecture != "ForTokenClassification") {
    return;
  }
  const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder);
  for (const char* name : {"classifier.weight", "classifier.out_proj.weight"}) {
    if (!tensors.has(name)) continue;
    const auto count = static_cast<size_t>(tensors.info(name).shape.front());
    if (count == config.id2label.size()) continue;
    config.id2label.clear();
    for (size_t i = 0; i < count; ++i) config.id2label.push_back("LABEL_" + std::to_string(i));
  }
}

}  // namespace finetune
