// SPDX-License-Identifier: MIT
// The decision of memory_budget as sentences, as keys, and as the record in a checkpoint.
#include "finetune/plan/memory_text.h"

#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// The arguments of every optimizer; those that are not chosen have their defaults.
Json arguments_json(const OptimizerChoice& optimizer) {
  Json json = Json::object();
  for (const OptimizerNames& names : optimizer_names()) {
    for (const OptimizerArgument& one : names.arguments) {
      const auto given = optimizer.arguments.find(one.name);
      const OptimizerValue value =
          given == optimizer.arguments.end() ? one.fallback : given->second;
      std::visit([&](auto typed) { json[one.name] = typed; }, value);
    }
  }
  return json;
}

Json choices_json(const MemoryChoices& choices) {
  const ActivationCheckpointing& again = choices.checkpointing;
  Json json = {{"micro_batch", choices.micro_batch},
               {"checkpointing", again.enabled},
               {"every_n_layers", again.every_n_layers},
               {"offload", again.offload},
               {"selective", again.selective},
               {"head_rows_per_chunk", choices.head_rows_per_chunk},
               {"weights", name_of(choices.weights)},
               {"gradients", name_of(choices.gradients)},
               {"precision", name_of(choices.precision)},
               {"optimizer", choices.optimizer.kind}};
  json.update(arguments_json(choices.optimizer));
  json["optimizer_in_backward"] = choices.optimizer_in_backward;
  json["four_bits"] = choices.four_bits;
  return json;
}

// Reads a stored decision. Every value is checked: the file may be damaged or from another version.
class DecisionReader {
 public:
  DecisionReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) throw Error(ErrorKind::kData, where_ + ": memory must be an object");
  }

  [[nodiscard]] const Json& object(const char* name) const {
    return at(name, &Json::is_object, "an object");
  }
  [[nodiscard]] int64_t count(const char* name, int64_t least = 1) const {
    const Json& value = at(name, &Json::is_number_integer, "a whole number");
    if (value.get<double>() > 0x1p62 || value.get<int64_t>() < least) {
      refuse(name, "a whole number of at least " + std::to_string(least));
    }
    return value.get<int64_t>();
  }
  [[nodiscard]] bool flag(const char* name) const {
    return at(name, &Json::is_boolean, "true or false").get<bool>();
  }
  [[nodiscard]] double number(const char* name) const {
    return at(name, &Json::is_number, "a number").get<double>();
  }
  template <class Value, size_t kCount>
  [[nodiscard]] Value one_of(const char* name, const std::array<Value, kCount>& values) const {
    const std::string text = at(name, &Json::is_string, "a text").get<std::string>();
    for (const Value value : values) {
      if (name_of(value) == text) return value;
    }
    refuse(name, "a format that is known here");
  }
  [[nodiscard]] OptimizerChoice optimizer() const {
    OptimizerChoice choice{.kind = at("optimizer", &Json::is_string, "a text").get<std::string>()};
    const OptimizerNames* names = find_optimizer_names(choice.kind);
    if (names == nullptr) refuse("optimizer", "an optimizer that is known here");
    for (const OptimizerArgument& one : names->arguments) {
      choice.arguments[one.name] = std::visit(
          [&](auto typed) -> OptimizerValue { return value_like(typed, one.name.c_str()); },
          one.fallback);
    }
    return choice;
  }

 private:
  [[nodiscard]] bool value_like(bool, const char* name) const { return flag(name); }
  [[nodiscard]] int64_t value_like(int64_t, const char* name) const { return count(name, 0); }
  [[nodiscard]] double value_like(double, const char* name) const { return number(name); }
  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    throw Error(ErrorKind::kData,
                where_ + ": '" + std::string(name) + "' of memory must be " + expected);
  }
  [[nodiscard]] const Json& at(const char* name, bool (Json::*is)() const noexcept,
                               const char* expected) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !((*found).*is)()) refuse(name, expected);
    return *found;
  }

  const Json& json_;
  std::string where_;
};

MemoryChoices read_choices(const Json& json, const std::string& where) {
  const DecisionReader in(json, where);
  return {.micro_batch = in.count("micro_batch"),
          .checkpointing = {.enabled = in.flag("checkpointing"),
                            .every_n_layers = in.count("every_n_layers"),
                            .offload = in.flag("offload"),
                            .selective = in.flag("selective")},
          .head_rows_per_chunk = in.count("head_rows_per_chunk"),
          .weights = in.one_of("weights", std::array{WeightFormat::kFloat32, WeightFormat::kSplit,
                                                     WeightFormat::kBFloat16}),
          .gradients = in.one_of("gradients",
                                 std::array{GradientFormat::kFloat32, GradientFormat::kBFloat16}),
          .precision = in.one_of("precision", std::array{Precision::kFloat32, Precision::kBFloat16,
                                                         Precision::kFloat16}),
          .optimizer = in.optimizer(),
          .optimizer_in_backward = in.flag("optimizer_in_backward"),
          .four_bits = json.contains("four_bits") && in.flag("four_bits")};
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
  if (choices.head_rows_per_chunk != asked.head_rows_per_chunk) {
    text += format_text(", {} rows of the head at a time", choices.head_rows_per_chunk);
  }
  std::string keys;
  const auto deviate = [&](bool differs, const std::string& what, const char* key) {
    if (!differs) return;
    text += ", " + what;
    keys += (keys.empty() ? "" : ", ") + std::string(key);
  };
  deviate(choices.gradients != asked.gradients, "bfloat16 gradients", "grad_accum_dtype: float32");
  deviate(choices.optimizer != asked.optimizer, "8-bit AdamW", "optim: adamw_torch");
  deviate(choices.weights != asked.weights, "24-bit weights", "param_dtype: float32");
  deviate(choices.four_bits, "four bits for the base", "load_in_4bit: false");
  text += "; predicted peak " + mebibytes(predicted);
  if (!keys.empty()) text += "; formats change results a little, to forbid it set " + keys;
  return text;
}

bool MemoryDecision::is_for(const LoadedConfig& config, int64_t batch) const {
  const auto is_set = [&](const char* key) { return config.is_set(key); };
  const std::optional<int64_t> most = memory_budget_of(config.args);
  if (!most || predicted > *most || choices_of(config.args) != asked || effective_batch != batch) {
    return false;
  }
  if (choices.four_bits && config.args.load_in_4bit == "false") return false;
  if (choices.weights != asked.weights && is_set("param_dtype")) return false;
  if (choices.gradients != asked.gradients && is_set("grad_accum_dtype")) return false;
  if (choices.optimizer != asked.optimizer && (is_set("optim") || is_set("optim_args"))) {
    return false;
  }
  return choices.checkpointing == asked.checkpointing ||
         !(is_set("activation_checkpointing") || is_set("gradient_checkpointing"));
}

LoadedConfig MemoryDecision::recorded_in(const LoadedConfig& config) const {
  LoadedConfig applied = config;
  TrainingArgs& args = applied.args;
  args.per_device_train_batch_size = choices.micro_batch;
  args.gradient_accumulation_steps = effective_batch / choices.micro_batch;
  args.param_dtype = name_of(choices.weights);
  args.grad_accum_dtype = name_of(choices.gradients);
  if (args.load_in_4bit == "auto") args.load_in_4bit = choices.four_bits ? "true" : "false";
  if (choices.optimizer != asked.optimizer) {
    FT_CHECK(choices.optimizer.kind == "adamw_companded_8bit", "the one that is picked");
    args.optim = choices.optimizer.kind;
    args.optim_args = {};
  }
  const ActivationCheckpointing& again = choices.checkpointing;
  if (again != asked.checkpointing) {
    args.activation_checkpointing = args.gradient_checkpointing = again.enabled;
    args.activation_checkpointing_kwargs = {again.selective ? R"({"selective":true})" : ""};
    args.gradient_checkpointing_kwargs = args.activation_checkpointing_kwargs;
  }
  return applied;
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
