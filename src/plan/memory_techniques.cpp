// SPDX-License-Identifier: MIT
#include "plan/memory_techniques.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/text.h"
#include "finetune/plan/memory_text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// A technique that is one member of MemoryChoices; a number, a flag or one of some formats are
// stored under its name.
template <class Value>
MemoryTechnique of_member(const char* name, Value MemoryChoices::*member) {
  MemoryTechnique technique{.name = name};
  technique.copy = [=](auto& from, auto& to) { to.*member = from.*member; };
  return technique;
}

MemoryTechnique of_number(const char* name, int64_t MemoryChoices::*member) {
  MemoryTechnique technique = of_member(name, member);
  technique.write = [=](auto& choices, Json& json) { json[name] = choices.*member; };
  technique.read = [=](auto& in, auto& choices) { choices.*member = in.count(name); };
  return technique;
}

MemoryTechnique of_flag(const char* name, bool MemoryChoices::*member) {
  MemoryTechnique technique = of_member(name, member);
  technique.write = [=](auto& choices, Json& json) { json[name] = choices.*member; };
  technique.read = [=](auto& in, auto& choices) { choices.*member = in.flag(name); };
  return technique;
}

template <class Format, size_t kCount>
MemoryTechnique of_format(const char* name, Format MemoryChoices::*member,
                          std::array<Format, kCount> formats) {
  MemoryTechnique technique = of_member(name, member);
  technique.write = [=](auto& choices, Json& json) { json[name] = name_of(choices.*member); };
  technique.read = [=](auto& in, auto& choices) {
    const std::string text = in.text(name);
    const auto is_named = [&](Format format) { return name_of(format) == text; };
    const auto found = std::ranges::find_if(formats, is_named);
    if (found == formats.end()) in.refuse(name, "a format that is known here");
    choices.*member = *found;
  };
  return technique;
}

// Appends values.front() with one member changed.
template <class Value>
void add(std::vector<MemoryChoices>& values, Value MemoryChoices::*member, const Value& value) {
  MemoryChoices other = values.front();
  other.*member = value;
  if (other != values.front()) values.push_back(std::move(other));
}

MemoryTechnique micro_batch() {
  MemoryTechnique technique = of_number("micro_batch", &MemoryChoices::micro_batch);
  technique.keys = {"per_device_train_batch_size"};
  technique.ask = [](auto& args, auto& choices) {
    choices.micro_batch = args.per_device_train_batch_size;
  };
  technique.record = [](auto& decision, auto& args) {
    args.per_device_train_batch_size = decision.choices.micro_batch;
    args.gradient_accumulation_steps = decision.effective_batch / decision.choices.micro_batch;
  };
  technique.save = [](auto& workload, auto& choices) {
    const int64_t rows = choices.micro_batch / 2;
    if (rows == 0 || choices.micro_batch % 2 != 0 || workload.effective_batch % rows != 0) {
      return std::string();
    }
    choices.micro_batch = rows;
    return format_text("per_device_train_batch_size: {} and gradient_accumulation_steps: {}", rows,
                       workload.effective_batch / rows);
  };
  return technique;
}

MemoryTechnique checkpointing() {
  MemoryTechnique technique = of_member("checkpointing", &MemoryChoices::checkpointing);
  technique.keys = {"activation_checkpointing", "gradient_checkpointing"};
  technique.stage = Stage::kEqualResults;
  technique.ask = [](auto& args, auto& choices) { choices.checkpointing = checkpointing_of(args); };
  technique.record = [](auto& decision, auto& args) {
    const ActivationCheckpointing& again = decision.choices.checkpointing;
    if (again == decision.asked.checkpointing) return;
    args.activation_checkpointing = args.gradient_checkpointing = again.enabled;
    args.activation_checkpointing_kwargs = {again.selective ? R"({"selective":true})" : ""};
    args.gradient_checkpointing_kwargs = args.activation_checkpointing_kwargs;
  };
  technique.write = [](auto& choices, Json& json) {
    const ActivationCheckpointing& again = choices.checkpointing;
    json["checkpointing"] = again.enabled;
    json["every_n_layers"] = again.every_n_layers;
    json["offload"] = again.offload;
    json["selective"] = again.selective;
  };
  technique.read = [](auto& in, auto& choices) {
    choices.checkpointing = {.enabled = in.flag("checkpointing"),
                             .every_n_layers = in.count("every_n_layers"),
                             .offload = in.flag("offload"),
                             .selective = in.flag("selective")};
  };
  technique.others = [](auto&, auto& values) {
    add(values, &MemoryChoices::checkpointing, {.enabled = true, .selective = true});
    add(values, &MemoryChoices::checkpointing, {.enabled = true});
  };
  technique.save = [](auto&, auto& choices) {
    choices.checkpointing = {.enabled = true};
    return "gradient_checkpointing: true";
  };
  return technique;
}

// The logits of the loss, a chunk of rows at a time; it has no key.
MemoryTechnique head_rows() {
  MemoryTechnique technique = of_number("head_rows_per_chunk", &MemoryChoices::head_rows_per_chunk);
  technique.stage = Stage::kEqualResults;
  technique.others = [](auto& workload, auto& values) {
    if (workload.head) return;  // no logits of words
    for (const int64_t rows : {64, 32}) add(values, &MemoryChoices::head_rows_per_chunk, rows);
  };
  technique.clause = [](auto& choices) {
    return format_text("{} rows of the head at a time", choices.head_rows_per_chunk);
  };
  return technique;
}

MemoryTechnique weights() {
  constexpr std::array kFormats = {WeightFormat::kFloat32, WeightFormat::kSplit,
                                   WeightFormat::kBFloat16};
  MemoryTechnique technique = of_format("weights", &MemoryChoices::weights, kFormats);
  technique.keys = {"param_dtype"};
  technique.stage = Stage::kWeights;
  technique.ask = [=](auto& args, auto& choices) {
    for (const WeightFormat format : kFormats) {
      if (args.param_dtype == name_of(format)) choices.weights = format;
    }
  };
  technique.record = [](auto& decision, auto& args) {
    args.param_dtype = name_of(decision.choices.weights);
  };
  technique.others = [](auto&, auto& values) {
    add(values, &MemoryChoices::weights, WeightFormat::kSplit);
  };
  technique.clause = [](auto&) { return "24-bit weights"; };
  technique.forbidding = "param_dtype: float32";
  technique.save = [](auto&, auto& choices) {
    if (choices.weights == WeightFormat::kFloat32) choices.weights = WeightFormat::kBFloat16;
    return "param_dtype: bfloat16";
  };
  return technique;
}

MemoryTechnique gradients() {
  MemoryTechnique technique =
      of_format("gradients", &MemoryChoices::gradients,
                std::array{GradientFormat::kFloat32, GradientFormat::kBFloat16});
  technique.keys = {"grad_accum_dtype"};
  technique.stage = Stage::kFormats;
  technique.ask = [](auto& args, auto& choices) {
    if (args.grad_accum_dtype == "bfloat16") choices.gradients = GradientFormat::kBFloat16;
  };
  technique.record = [](auto& decision, auto& args) {
    args.grad_accum_dtype = name_of(decision.choices.gradients);
  };
  technique.others = [](auto&, auto& values) {
    add(values, &MemoryChoices::gradients, GradientFormat::kBFloat16);
  };
  technique.clause = [](auto&) { return "bfloat16 gradients"; };
  technique.forbidding = "grad_accum_dtype: float32";
  technique.save = [](auto&, auto& choices) {
    choices.gradients = GradientFormat::kBFloat16;
    return "grad_accum_dtype: bfloat16";
  };
  return technique;
}

MemoryTechnique precision() {
  MemoryTechnique technique =
      of_format("precision", &MemoryChoices::precision,
                std::array{Precision::kFloat32, Precision::kBFloat16, Precision::kFloat16});
  technique.keys = {"bf16", "fp16"};
  technique.ask = [](auto& args, auto& choices) {
    if (args.bf16) choices.precision = Precision::kBFloat16;
    if (args.fp16) choices.precision = Precision::kFloat16;
  };
  return technique;
}

MemoryTechnique optimizer() {
  MemoryTechnique technique = of_member("optimizer", &MemoryChoices::optimizer);
  technique.keys = {"optim", "optim_args"};
  technique.stage = Stage::kFormats;
  technique.ask = [](auto& args, auto& choices) { choices.optimizer = optimizer_of(args); };
  technique.record = [](auto& decision, auto& args) {
    if (decision.choices.optimizer == decision.asked.optimizer) return;
    args.optim = decision.choices.optimizer.kind;
    args.optim_args = {};
  };
  // With the arguments of every optimizer; those that are not chosen have their defaults.
  technique.write = [](auto& choices, Json& json) {
    const OptimizerArguments& own = choices.optimizer.arguments;
    json["optimizer"] = choices.optimizer.kind;
    for (const OptimizerNames& names : optimizer_names()) {
      for (const OptimizerArgument& one : names.arguments) {
        const auto given = own.find(one.name);
        std::visit([&](auto typed) { json[one.name] = typed; },
                   given == own.end() ? one.fallback : given->second);
      }
    }
  };
  technique.read = [](auto& in, auto& choices) {
    choices.optimizer = {.kind = in.text("optimizer")};
    const OptimizerNames* names = find_optimizer_names(choices.optimizer.kind);
    if (names == nullptr) in.refuse("optimizer", "an optimizer that is known here");
    for (const OptimizerArgument& one : names->arguments) {
      choices.optimizer.arguments[one.name] = in.value_like(one.fallback, one.name.c_str());
    }
  };
  technique.others = [](auto&, auto& values) {
    add(values, &MemoryChoices::optimizer, {.kind = "adamw_companded_8bit"});
  };
  technique.clause = [](auto&) { return "8-bit AdamW"; };
  technique.forbidding = "optim: adamw_torch";
  technique.save = [](auto&, auto& choices) {
    if (choices.optimizer.kind == "adamw") choices.optimizer = {.kind = "adamw_8bit"};
    return "optim: adamw_8bit";
  };
  return technique;
}

MemoryTechnique optimizer_in_backward() {
  MemoryTechnique technique =
      of_flag("optimizer_in_backward", &MemoryChoices::optimizer_in_backward);
  technique.keys = {"optimizer_in_backward"};
  technique.ask = [](auto& args, auto& choices) {
    choices.optimizer_in_backward = args.optimizer_in_backward;
  };
  technique.save = [](auto& workload, auto& choices) {
    if (choices.micro_batch == workload.effective_batch) choices.optimizer_in_backward = true;
    return "optimizer_in_backward: true";
  };
  return technique;
}

MemoryTechnique four_bits() {
  MemoryTechnique technique = of_flag("four_bits", &MemoryChoices::four_bits);
  technique.keys = {"load_in_4bit"};
  technique.stage = Stage::kBase;
  technique.record = [](auto& decision, auto& args) {
    if (four_bits_of(args) != FourBits::kAuto) return;
    args.load_in_4bit = decision.choices.four_bits ? "true" : "false";
  };
  technique.is_fixed = [](auto& config) { return four_bits_of(config.args) == FourBits::kNo; };
  technique.read = [](auto& in, auto& choices) {  // not in records of earlier versions
    choices.four_bits = in.has("four_bits") && in.flag("four_bits");
  };
  technique.others = [](auto& workload, auto& values) {
    if (workload.four_bits) add(values, &MemoryChoices::four_bits, true);
  };
  technique.clause = [](auto&) { return "four bits for the base"; };
  technique.forbidding = "load_in_4bit: false";
  return technique;
}

}  // namespace

const std::deque<MemoryTechnique>& memory_techniques() {
  static const std::deque<MemoryTechnique> techniques = {
      micro_batch(), checkpointing(),         head_rows(), weights(), gradients(), precision(),
      optimizer(),   optimizer_in_backward(), four_bits()};
  return techniques;
}

MemoryChoices choices_of(const TrainingArgs& args) {
  MemoryChoices choices;
  for (const MemoryTechnique& technique : memory_techniques()) {
    if (technique.ask) technique.ask(args, choices);
  }
  return choices;
}

MemoryOptions memory_options(const LoadedConfig& config) {
  MemoryOptions options = {.asked = choices_of(config.args),
                           .budget = memory_budget_of(config.args),
                           .where = config.where("memory_budget")};
  for (const MemoryTechnique& technique : memory_techniques()) {
    const auto is_set = [&](const std::string& key) { return config.is_set(key); };
    const bool is_fixed = technique.is_fixed ? technique.is_fixed(config)
                                             : std::ranges::any_of(technique.keys, is_set);
    if (is_fixed) options.fixed.push_back(technique.name);
  }
  return options;
}

bool MemoryOptions::is_fixed(const std::string& technique) const {
  return std::ranges::find(fixed, technique) != fixed.end();
}

}  // namespace finetune
