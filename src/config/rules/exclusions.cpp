// SPDX-License-Identifier: MIT
#include "finetune/config/exclusions.h"

#include <nlohmann/json.hpp>

#include "config/reading/problems.h"
#include "config/reading/values.h"
#include "finetune/config/fields.h"
#include "finetune/config/techniques.h"

namespace finetune {
namespace {

const ExclusionSide kInBackward = {
    "optimizer_in_backward: true", {"optimizer_in_backward"}, [](const TrainingArgs& args) {
      return args.optimizer_in_backward;
    }};

const ExclusionSide kSelective = {
    "selective: true in activation_checkpointing_kwargs",
    {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
    [](const TrainingArgs& args) { return checkpointing_of(args).selective; }};

ExclusionSide flag(const char* key, bool (*holds)(const TrainingArgs&)) {
  return {std::string(key) + ": true", {key}, holds};
}

ExclusionSide checkpointing(const char* text, bool (*holds)(const TrainingArgs&)) {
  return {text, {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"}, holds};
}

std::vector<Exclusion> make_table() {
  return {
      {kInBackward,
       {"max_grad_norm above 0",
        {"max_grad_norm"},
        [](const TrainingArgs& args) { return args.max_grad_norm > 0; }},
       "exact clipping needs all gradients before the first update",
       "set max_grad_norm to 0 (no clipping), or leave optimizer_in_backward out"},
      {kInBackward,
       {"gradient_accumulation_steps above 1",
        {"gradient_accumulation_steps", "effective_batch_size"},
        [](const TrainingArgs& args) { return args.gradient_accumulation_steps > 1; }},
       "a gradient that is freed at once cannot be summed over several batches",
       "set per_device_train_batch_size to the whole batch, or leave optimizer_in_backward out"},
      {kInBackward, flag("fp16", [](const TrainingArgs& args) { return args.fp16; }),
       "fp16 decides whether to skip an update only after all gradients exist",
       "use bf16, or leave optimizer_in_backward out"},
      {flag("fp16", [](const TrainingArgs& args) { return args.fp16; }),
       flag("bf16", [](const TrainingArgs& args) { return args.bf16; }),
       "there is one format to compute in", "keep one"},
      {flag("fp16_full_eval", [](const TrainingArgs& args) { return args.fp16_full_eval; }),
       flag("bf16_full_eval", [](const TrainingArgs& args) { return args.bf16_full_eval; }),
       "there is one format to evaluate in", "keep one"},
      {checkpointing("every_n_layers, offload or selective in activation_checkpointing_kwargs",
                     [](const TrainingArgs& args) {
                       const ActivationCheckpointing asked = checkpointing_of(args);
                       return asked.every_n_layers > 1 || asked.offload || asked.selective;
                     }),
       {"activation_checkpointing: false",
        {"activation_checkpointing", "gradient_checkpointing"},
        [](const TrainingArgs& args) { return !args.activation_checkpointing.value_or(false); }},
       "they would have no effect",
       "set activation_checkpointing to true, or leave them out"},
      {kSelective,
       checkpointing(
           "every_n_layers above 1 in activation_checkpointing_kwargs",
           [](const TrainingArgs& args) { return checkpointing_of(args).every_n_layers > 1; }),
       "matrix products of every layer are kept, so that no layers are left out", "keep one"},
      {kSelective,
       checkpointing("offload: true in activation_checkpointing_kwargs",
                     [](const TrainingArgs& args) { return checkpointing_of(args).offload; }),
       "offload moves the inputs of layers that are computed again as a whole", "keep one"},
  };
}

std::string key_with_value(const std::string& key, const TrainingArgs& args) {
  return "'" + key + ": " + plain_text(value_of(*find_field(key), args)) + "'";
}

// Returns the key of a side that the user set; if none was set, the first one.
const std::string& written_key(const ExclusionSide& side, const KeyLocations& keys) {
  for (const std::string& key : side.keys) {
    if (keys.is_set(key)) return key;
  }
  return side.keys.front();
}

}  // namespace

const std::vector<Exclusion>& all_exclusions() {
  static const std::vector<Exclusion> table = make_table();
  return table;
}

std::string describe_exclusions_markdown() {
  std::string text = "| this | excludes this | because | what to do |\n|---|---|---|---|\n";
  for (const Exclusion& exclusion : all_exclusions()) {
    text += "| `" + exclusion.first.text + "` | `" + exclusion.second.text + "` | " +
            exclusion.reason + " | " + exclusion.advice + " |\n";
  }
  return text;
}

void check_exclusions(const LoadedConfig& config, Problems& problems) {
  for (const auto& [first, second, reason, advice] : all_exclusions()) {
    if (!first.holds(config.args) || !second.holds(config.args)) continue;
    const std::string& one = written_key(first, config);
    const std::string& other = written_key(second, config);
    if (one == other) {
      problems.add(config.where(one), "'" + first.text + "' excludes '" + second.text +
                                          "': " + reason + "; " + advice);
      continue;
    }
    const bool leads = config.is_set(one);
    const std::string location = config.is_set(other) ? config.where(other) : "the default";
    problems.add(config.where(leads ? one : other), key_with_value(one, config.args) +
                                                        " excludes " +
                                                        key_with_value(other, config.args) + " (" +
                                                        location + "): " + reason + "; " + advice);
  }
}

}  // namespace finetune
