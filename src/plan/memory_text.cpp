// SPDX-License-Identifier: MIT
// The decision of memory_budget as sentences, as keys, and as the record in a checkpoint.
#include "finetune/plan/memory_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "plan/memory_techniques.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

Json choices_json(const MemoryChoices& choices) {
  Json json = Json::object();
  for (const MemoryTechnique& technique : memory_techniques()) technique.write(choices, json);
  return json;
}

MemoryChoices read_choices(const Json& json, const std::string& where) {
  const DecisionReader in(json, where);
  MemoryChoices choices;
  for (const MemoryTechnique& technique : memory_techniques()) technique.read(in, choices);
  return choices;
}

}  // namespace

std::string mebibytes(int64_t bytes) {
  return format_text("{} MiB", (bytes + (1 << 20) - 1) >> 20);
}

std::string name_of(Precision precision) {
  if (precision == Precision::kFloat32) return "float32";
  return precision == Precision::kBFloat16 ? "bfloat16" : "float16";
}

std::string describe(const ActivationCheckpointing& checkpointing) {
  if (!checkpointing.enabled) return "none";
  if (checkpointing.selective) return "selective";
  if (checkpointing.every_n_layers == 1) return "every layer";
  return format_text("every {} layers", checkpointing.every_n_layers);
}

std::string MemoryDecision::line() const {
  std::string text = format_text(
      "memory_budget {}: {} x {} samples an update, recomputation: {}", mebibytes(budget),
      choices.micro_batch, effective_batch / choices.micro_batch, describe(choices.checkpointing));
  std::string keys;
  for (const MemoryTechnique& technique : memory_techniques()) {
    if (!technique.clause || !technique.differs(choices, asked)) continue;
    text += ", " + technique.clause(choices);
    if (technique.forbidding.empty()) continue;
    keys += (keys.empty() ? "" : ", ") + technique.forbidding;
  }
  text += "; predicted peak " + mebibytes(predicted);
  if (!keys.empty()) text += "; formats change results a little, to forbid it set " + keys;
  return text;
}

bool MemoryDecision::is_for(const MemoryOptions& options, int64_t batch) const {
  if (!options.budget || predicted > *options.budget) return false;
  if (options.asked != asked || effective_batch != batch) return false;
  return std::ranges::none_of(memory_techniques(), [&](const MemoryTechnique& technique) {
    const bool is_chosen = technique.stage != Stage::kNever && technique.differs(choices, asked);
    return is_chosen && options.is_fixed(technique.name);
  });
}

void MemoryDecision::record_in(TrainingArgs& args) const {
  for (const MemoryTechnique& technique : memory_techniques()) {
    if (technique.record) technique.record(*this, args);
  }
}

Json MemoryDecision::to_json() const {
  return {{"budget", budget},
          {"effective_batch", effective_batch},
          {"predicted", predicted},
          {"asked", choices_json(asked)},
          {"choices", choices_json(choices)}};
}

MemoryDecision MemoryDecision::from_json(const Json& json, const std::string& where) {
  const DecisionReader in(json, where);
  MemoryDecision decision{.asked = read_choices(in.object("asked"), where),
                          .choices = read_choices(in.object("choices"), where),
                          .budget = in.count("budget"),
                          .effective_batch = in.count("effective_batch"),
                          .predicted = in.count("predicted", 0)};
  if (decision.effective_batch % decision.choices.micro_batch != 0) {
    throw Error(ErrorKind::kData,
                where + ": 'micro_batch' of memory does not divide 'effective_batch'");
  }
  return decision;
}

}  // namespace finetune
