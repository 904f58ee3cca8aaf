// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "config/reading/problems.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/config/adapter_keys.h"
#include "finetune/config/fields.h"
#include "finetune/config/techniques.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// The numbers of a mapping from patterns to numbers above 0.
template <typename T>
std::vector<std::pair<std::string, T>> pattern_values(const KeyLocations& keys, const char* key,
                                                      const JsonText& text) {
  std::vector<std::pair<std::string, T>> values;
  if (text.empty()) return values;
  const Json mapping = parse_json(text.text, key, ErrorKind::kConfig);
  if (!mapping.is_object()) refuse_key(keys, key, "is no mapping of names to numbers");
  constexpr bool kIsWhole = std::is_integral_v<T>;
  constexpr int64_t kMost = int64_t{1} << 16;
  for (const auto& [pattern, value] : mapping.items()) {
    if (kIsWhole ? value.is_number_integer() && value >= 1 && value <= kMost
                 : value.is_number() && value >= 0) {
      values.emplace_back(pattern, value.template get<T>());
    } else {
      refuse_key(keys, key,
                 "'" + pattern + "' has " + value.dump() + ", which is no " +
                     (kIsWhole ? "rank (a whole number from 1)" : "alpha (a number from 0)"));
    }
  }
  return values;
}

class AdapterRules {
 public:
  AdapterRules(const LoadedConfig& config, Problems& problems)
      : config_(config), args_(config.args), problems_(problems) {}

  void check(bool trains) {
    if (!args_.use_peft) {
      check_keys_without_adapter(trains);
      return;
    }
    for (const std::function<void()>& parse : std::initializer_list<std::function<void()>>{
             [&] { (void)lora_ranks(config_); }, [&] { (void)lora_alphas(config_); },
             [&] { (void)lora_layers(config_); }}) {
      try {
        parse();
      } catch (const Error& error) {
        problems_.add_line(error.what());
      }
    }
    check_combinations(trains);
  }

 private:
  void add(const char* key, const std::string& why) {
    problems_.add(config_.where(key), std::string(key) + ": " + why);
  }

  void check_keys_without_adapter(bool trains) {
    if (trains && !config_.is_set("use_peft")) {
      std::vector<std::string> keys;
      for (const Field& field : all_fields()) {
        const bool is_of_adapters = is_of_adapter_config(field.name) ||
                                    field.name.starts_with("loraplus_") ||
                                    field.name == "adapter_name_or_path";
        if (is_of_adapters && config_.is_set(field.name)) keys.push_back(field.name);
      }
      if (!keys.empty()) {
        problems_.add(config_.where(keys.front()),
                      join(keys) +
                          ": for an adapter, and use_peft is not set; set use_peft: true to train "
                          "an adapter, or use_peft: false to train all weights without it");
      }
    }
    if (four_bits_of(args_) != FourBits::kNo) {
      add("load_in_4bit",
          "is for the frozen weights under an adapter: weights of four bits cannot be trained; set "
          "use_peft: true, or save memory with param_dtype and memory_budget");
    }
    if (args_.dtype == "bfloat16" || args_.dtype == "float16") {
      add("dtype",
          "is the type of the frozen weights under an adapter (use_peft); of weights that are "
          "trained it is param_dtype, which may be bfloat16");
    }
  }

  void check_combinations(bool trains) {
    if (args_.loraplus_lr_embedding != TrainingArgs().loraplus_lr_embedding &&
        !args_.loraplus_lr_ratio) {
      add("loraplus_lr_embedding",
          "is a learning rate of LoRA+ and has no effect without loraplus_lr_ratio");
    }
    if (args_.task == "pretraining") {
      add("use_peft",
          "trains an adapter on a trained model and is not available for task pretraining; task "
          "mlm trains one on more text");
    }
    if (trains && !args_.model_name_or_path) {
      add("use_peft",
          "trains an adapter on a trained model; name its folder as model_name_or_path");
    }
    if (args_.use_dora && args_.param_dtype != "float32") {
      add("param_dtype", "has no place for DoRA's magnitudes, which change too little for " +
                             args_.param_dtype +
                             "; leave it out: the base keeps its own type (dtype)");
    }
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
  Problems& problems_;
};

}  // namespace

bool is_of_adapter_config(const std::string& key) {
  return key.starts_with("lora_") || key == "use_rslora" || key == "use_dora";
}

std::vector<std::pair<std::string, int64_t>> lora_ranks(const LoadedConfig& config) {
  return pattern_values<int64_t>(config, "lora_rank_pattern", config.args.lora_rank_pattern);
}

std::vector<std::pair<std::string, double>> lora_alphas(const LoadedConfig& config) {
  return pattern_values<double>(config, "lora_alpha_pattern", config.args.lora_alpha_pattern);
}

std::vector<int64_t> lora_layers(const LoadedConfig& config) {
  std::vector<int64_t> numbers;
  for (const std::string& text : config.args.lora_layers_to_transform) {
    const bool is_number = !text.empty() && text.size() < 7 &&
                           std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) {
      refuse_key(config, "lora_layers_to_transform", "'" + text + "' is not the number of a layer");
    }
    numbers.push_back(std::stoll(text));
  }
  return numbers;
}

void check_adapters(const LoadedConfig& config, bool trains, Problems& problems) {
  AdapterRules(config, problems).check(trains);
}

}  // namespace finetune
