// SPDX-License-Identifier: MIT
#include "train/setup/adapter.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/fields.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/task/tasks.h"
#include "finetune/train/adapter_base.h"
#include "train/setup/run_inputs.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Names of modules; a single one with more than a name's characters is a regular expression.
nn::ModuleNames module_names(const std::vector<std::string>& names) {
  constexpr char kOfPatterns[] = "*+?()[]{}|^$\\";
  return {.names = names,
          .is_pattern =
              names.size() == 1 && names.front().find_first_of(kOfPatterns) != std::string::npos};
}

// The numbers of a mapping from patterns to numbers above 0.
template <typename T>
std::vector<std::pair<std::string, T>> pattern_values(const LoadedConfig& config, const char* key,
                                                      const JsonText& text) {
  std::vector<std::pair<std::string, T>> values;
  if (text.empty()) return values;
  const Json mapping = parse_json(text.text, key, ErrorKind::kConfig);
  if (!mapping.is_object()) refuse_key(config, key, "is no mapping of names to numbers");
  constexpr bool kIsWhole = std::is_integral_v<T>;
  constexpr int64_t kMost = int64_t{1} << 16;
  for (const auto& [pattern, value] : mapping.items()) {
    if (kIsWhole ? value.is_number_integer() && value >= 1 && value <= kMost
                 : value.is_number() && value >= 0) {
      values.emplace_back(pattern, value.template get<T>());
    } else {
      refuse_key(config, key,
                 "'" + pattern + "' has " + value.dump() + ", which is no " +
                     (kIsWhole ? "rank (a whole number from 1)" : "alpha (a number from 0)"));
    }
  }
  return values;
}

std::vector<int64_t> layer_numbers(const LoadedConfig& config) {
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

// Whether these settings of an adapter are in its adapter_config.json.
bool is_in_adapter_config(const std::string& key) {
  return key.starts_with("lora_") || key == "use_rslora" || key == "use_dora";
}

// Without an adapter these do nothing, which is wanted where use_peft is switched off.
void warn_about_keys_of_adapters(const LoadedConfig& config) {
  std::vector<std::string> keys;
  for (const Field& field : all_fields()) {
    const bool is_of_adapters = is_in_adapter_config(field.name) ||
                                field.name.starts_with("loraplus_") ||
                                field.name == "adapter_name_or_path";
    if (is_of_adapters && config.is_set(field.name)) keys.push_back(field.name);
  }
  if (keys.empty()) return;
  log::warning(config.where(keys.front()) +
               ": no effect without use_peft: true: " + join(keys, ", "));
}

nn::LoraConfig lora_of_keys(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  nn::LoraConfig lora;
  lora.r = args.lora_r;
  lora.lora_alpha = args.lora_alpha;
  lora.lora_dropout = args.lora_dropout;
  lora.use_rslora = args.use_rslora;
  lora.use_dora = args.use_dora;
  lora.target_modules = module_names(args.lora_target_modules);
  lora.exclude_modules = module_names(args.lora_exclude_modules);
  lora.rank_pattern = pattern_values<int64_t>(config, "lora_rank_pattern", args.lora_rank_pattern);
  lora.alpha_pattern =
      pattern_values<double>(config, "lora_alpha_pattern", args.lora_alpha_pattern);
  lora.layers_to_transform = layer_numbers(config);
  lora.modules_to_save = args.lora_modules_to_save;
  lora.ensure_weight_tying = args.lora_ensure_weight_tying;
  lora.bias = args.lora_bias;
  return lora;
}

// Reads the adapter that a new run continues. A resumed one needs its configuration alone.
nn::LoraConfig named_adapter(const LoadedConfig& config, const std::string& run_folder,
                             StartingPoint& start) {
  for (const Field& field : all_fields()) {
    if (!is_in_adapter_config(field.name) || !config.is_set(field.name)) continue;
    refuse_key(config, field.name.c_str(),
               "is decided by the adapter_config.json of adapter_name_or_path; leave it out");
  }
  constexpr char kKey[] = "adapter_name_or_path";
  try {
    start.adapter = named_folder(config, kKey, *config.args.adapter_name_or_path);
  } catch (const Error& error) {
    if (run_folder.empty() || error.kind() != ErrorKind::kConfig) throw;
    log::debug(error.what());
    start.adapter = run_folder;
  }
  std::optional<nn::LoraConfig> lora = read_adapter_config(start.adapter);
  if (!lora) refuse_key(config, kKey, "'" + start.adapter + "' holds no adapter");
  return *std::move(lora);
}

void add_module(const std::string& module, std::vector<std::string>& modules) {
  if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
}

// An adapter's folder holds no frozen weights, so that what its base lacks (a pooler, after masked
// language modelling) is trained whole and saved. PEFT leaves it out, and its models then have
// other weights there at each start.
void train_what_base_lacks(const LoadedConfig& config, std::optional<Head> head, Parts& parts) {
  if (config_folder(parts.pretrained) != parts.pretrained) return;  // a run's own adapter
  nn::LoraConfig& lora = *parts.model_config.lora;
  std::vector<std::string> modules;
  const std::vector<std::string> missing =
      missing_in_base(parts.model_config, head, parts.pretrained);
  for (const std::string& name : missing) add_module(name.substr(0, name.rfind('.')), modules);
  if (modules.empty()) return;
  if (predicts_words(head)) {
    refuse_key(config, "model_name_or_path",
               "'" + parts.pretrained + "' lacks weights that an adapter does not hold: " +
                   listed(missing) + "; train the whole model first");
  }
  log::info("adapter: the base lacks " + join(modules, ", ") + ": trained whole");
  for (const std::string& module : modules) add_module(module, lora.modules_to_save);
}

// PEFT warns of it, too.
void note_tied_embedding(const ModelConfig& config, std::optional<Head> head,
                         const std::vector<ParameterShape>& shapes) {
  if (!predicts_words(head)) return;
  for (const auto& [own, other] : tied_names(config)) {
    const std::string module = own.substr(0, own.rfind('.'));
    for (const ParameterShape& shape : shapes) {
      if (shape.name != module + ".lora_embedding_A") continue;
      log::info("adapter: " + other + " is the same weight as " + own +
                ", but only the embedding has an adapter; the output layer uses the base's weight");
    }
  }
}

// GPT-2's matrices are stored as [in, out], which bitsandbytes does not quantise either.
void check_four_bits(const LoadedConfig& config, const Parts& parts) {
  if (!has_transposed_linear(parts.model_config) || config.args.load_in_4bit == "auto") return;
  refuse_key(config, "load_in_4bit",
             "is not available for " + parts.model_config.model_type +
                 ", whose matrices are stored as [in, out]; dtype: bfloat16 halves the base");
}

// A name that finds nothing is a mistake, and so is a base without anything to quantise.
void check_skipped_layers(const LoadedConfig& config, const Parts& parts) {
  const std::vector<ParameterShape> shapes =
      parameter_shapes(parts.model_config, task_of(config.args).head(config.args));
  for (const std::string& name : parts.base_format.skipped) {
    const BaseFormat alone = {.matrices = WeightFormat::kNf4, .skipped = {name}};
    const auto is_kept = [&](const ParameterShape& shape) {
      return shape.role == ParameterRole::kLinear &&
             alone.of(shape.name, shape.role) == alone.weights;
    };
    if (!name.empty() && std::ranges::any_of(shapes, is_kept)) continue;
    refuse_key(config, "llm_int8_skip_modules",
               "'" + name +
                   "' is the beginning or end of no linear layer's name that would be "
                   "quantized; output layers and embeddings never are");
  }
  const auto is_quantized = [&](const ParameterShape& shape) {
    return shape.is_base &&
           parts.base_format.of(shape.name, shape.role) == parts.base_format.matrices;
  };
  if (std::ranges::any_of(shapes, is_quantized)) return;
  refuse_key(config, "load_in_4bit", "nothing is left to quantize; see llm_int8_skip_modules");
}

}  // namespace

void add_adapter(const LoadedConfig& config, const AssemblyRequest& request, StartingPoint& start) {
  const bool trains = request.train;
  const TrainingArgs& args = config.args;
  if (trains && start.model_config.lora) {
    refuse_key(config, "model_name_or_path",
               "'" + start.pretrained +
                   "' is an adapter; to continue it set use_peft: true, "
                   "adapter_name_or_path: " +
                   start.pretrained +
                   " and model_name_or_path: " + start.model_config.lora->base_model_name_or_path);
  }
  if (!args.use_peft) {
    warn_about_keys_of_adapters(config);
    if (trains && start.model_config.is_nf4) {
      refuse_key(config, "model_name_or_path",
                 "'" + start.pretrained +
                     "' holds weights of four bits, which cannot be trained; set use_peft: true, "
                     "or name the model's folder in 16 or 32 bits");
    }
    if (args.load_in_4bit != "false") {
      refuse_key(config, "load_in_4bit",
                 "is for the frozen weights under an adapter: weights of four bits cannot be "
                 "trained; set use_peft: true, or save memory with param_dtype and memory_budget");
    }
    if (args.dtype == "bfloat16" || args.dtype == "float16") {
      refuse_key(config, "dtype",
                 "is the type of the frozen weights under an adapter (use_peft); of weights that "
                 "are trained it is param_dtype, which may be bfloat16");
    }
    return;
  }
  if (args.loraplus_lr_embedding != TrainingArgs().loraplus_lr_embedding &&
      !args.loraplus_lr_ratio) {
    refuse_key(config, "loraplus_lr_embedding",
               "is a learning rate of LoRA+ and has no effect without loraplus_lr_ratio");
  }
  if (args.task == "pretraining") {
    refuse_key(config, "use_peft",
               "trains an adapter on a trained model and is not available for task pretraining; "
               "task mlm trains one on more text");
  }
  if (start.pretrained.empty()) {
    refuse_key(config, "use_peft",
               "trains an adapter on a trained model; name its folder as model_name_or_path");
  }
  nn::LoraConfig lora = args.adapter_name_or_path ? named_adapter(config, request.run_folder, start)
                                                  : lora_of_keys(config);
  if (!args.adapter_name_or_path) {
    for (const std::string& module : output_modules(start.model_config, task_of(args).head(args))) {
      add_module(module, lora.modules_to_save);
    }
  }
  if (lora.use_dora && args.param_dtype != "float32") {
    refuse_key(config, "param_dtype",
               "has no place for DoRA's magnitudes, which change too little for " +
                   args.param_dtype + "; leave it out: the base keeps its own type (dtype)");
  }
  // A path must be found from any folder; a name in Hugging Face's cache stays a name.
  const std::string& name = *args.model_name_or_path;
  lora.base_model_name_or_path =
      start.pretrained == name ? std::filesystem::absolute(name).lexically_normal().string() : name;
  start.model_config.lora = std::move(lora);
}

std::unique_ptr<Optimizer> make_run_optimizer(const TrainingArgs& args, Model& model,
                                              const OptimizerOptions& options) {
  std::vector<bool> decays;
  for (const Weight& weight : model.weights()) decays.push_back(has_weight_decay(weight.name()));
  if (!args.loraplus_lr_ratio) return make_optimizer(model.store(), decays, options);
  // The four groups of PEFT's create_loraplus_optimizer.
  std::vector<ParameterGroup> groups(4, {.options = options, .parameters = {}});
  ParameterGroup& first = groups[0];
  ParameterGroup& of_embeddings = groups[1];
  ParameterGroup& second = groups[2];
  ParameterGroup& second_without_decay = groups[3];
  // Relative to the schedule, whose peak is learning_rate. With a peak of 0 nothing trains.
  of_embeddings.learning_rate_factor =
      args.learning_rate > 0.0 ? args.loraplus_lr_embedding / args.learning_rate : 0.0;
  second.learning_rate_factor = *args.loraplus_lr_ratio;
  second_without_decay.learning_rate_factor = *args.loraplus_lr_ratio;
  second_without_decay.options.weight_decay = 0.0;
  for (const Weight& weight : model.weights()) {
    const std::string& name = weight.name();
    const bool is_second = name.ends_with(".lora_B.weight") || weight.dim() == 1;
    ParameterGroup& group =
        !is_second ? first : (decays[weight.id()] ? second : second_without_decay);
    const bool is_of_embedding = name.find(".lora_embedding_") != std::string::npos;
    (is_of_embedding ? of_embeddings : group).parameters.push_back(weight.id());
  }
  return std::make_unique<Optimizer>(model.store(), std::move(groups));
}

void choose_base_format(const LoadedConfig& config, Parts& parts) {
  const TrainingArgs& args = config.args;
  const bool is_auto = args.load_in_4bit == "auto";
  BaseFormat& base = parts.base_format;
  base = base_format(parts.model_config, parts.pretrained);
  // The keys decide, or what the run of the folder did.
  if (!parts.model_config.is_nf4 && !is_auto) base.matrices.reset();
  if (args.dtype == "float32") base.weights = WeightFormat::kFloat32;
  if (args.dtype == "bfloat16") base.weights = WeightFormat::kBFloat16;
  if (args.dtype == "float16") base.weights = WeightFormat::kFloat16;
  for (const char* key : {"use_bnb_nested_quant", "llm_int8_skip_modules"}) {
    if (!config.is_set(key)) continue;
    if (parts.model_config.is_nf4) {
      refuse_key(config, key,
                 "is decided by the quantized folder '" + parts.pretrained + "'; leave it out");
    }
    if (args.load_in_4bit == "false") {
      log::warning(config.where(key) + ": no effect where load_in_4bit is not true: " + key);
    }
  }
  if (args.load_in_4bit == "false" || parts.model_config.is_nf4) return;
  check_four_bits(config, parts);
  if (has_transposed_linear(parts.model_config)) return;
  const std::optional<WeightFormat> before = base.matrices;
  base.matrices = args.use_bnb_nested_quant ? WeightFormat::kNf4Nested : WeightFormat::kNf4;
  base.skipped = args.llm_int8_skip_modules;
  check_skipped_layers(config, parts);
  if (!is_auto) return;
  parts.four_bits = base.matrices;
  base.matrices = before;
}

void settle_base(const LoadedConfig& config, Parts& parts) {
  if (!parts.model_config.lora) return;
  const TrainingArgs& args = config.args;
  try {
    const std::optional<Head> head = task_of(args).head(args);
    note_tied_embedding(parts.model_config, head, parameter_shapes(parts.model_config, head));
    train_what_base_lacks(config, head, parts);
  } catch (const nn::LoraError& error) {
    refuse_key(config, error.key(), error.what());
  }
  choose_base_format(config, parts);
}

namespace {

// Of the base that the run in an adapter's folder trained on; nullopt where no run recorded it.
std::optional<FileRecord> recorded_base(const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  if (!FileSystem::local().exists(path)) return std::nullopt;
  const nlohmann::ordered_json state = read_json_file(path, ErrorKind::kData);
  RunState saved;
  if (state.is_object() && state.contains("inputs")) saved.inputs = state["inputs"];
  std::optional<FileRecord> record = recorded_input(saved, kWeightsInput);
  if (record && record->contents.empty()) record.reset();
  return record;
}

// The content hash of a base that is not the recorded one; empty if it is.
std::string hash_if_other(const std::string& base, const FileRecord& record,
                          const TokenCacheOptions& cache) {
  if (look_at_files(weight_paths(base)).seen == record.seen) return "";
  std::string contents = hash_of_weights(base, cache);
  return contents == record.contents ? "" : contents;
}

}  // namespace

void check_base_of_continued(const LoadedConfig& config, const Parts& parts,
                             const TokenCacheOptions& cache) {
  const std::optional<FileRecord> record = recorded_base(parts.adapter);
  const std::string contents = record ? hash_if_other(parts.pretrained, *record, cache) : "";
  if (contents.empty()) return;
  refuse_key(config, "adapter_name_or_path",
             format_text("'{}' was trained on other weights than those of model_name_or_path '{}' "
                         "(content hash {}, then {}); name the base that it was trained on",
                         parts.adapter, parts.pretrained, contents, record->contents));
}

void check_adapter_base(const std::string& folder) {
  const auto lora = read_adapter_config(folder);
  if (!lora) return;
  const std::optional<FileRecord> record = recorded_base(folder);
  if (!record) return;
  const std::string base = adapter_base(folder, *lora);
  const std::string contents = hash_if_other(base, *record, {});
  if (contents.empty()) return;
  throw Error(
      ErrorKind::kData,
      format_text("the adapter '{}' was trained on other weights than those of its base '{}' now "
                  "(content hash {}, then {}); put the base back, or write its folder in {} as "
                  "base_model_name_or_path",
                  folder, base, contents, record->contents, kAdapterConfigFile));
}

}  // namespace finetune
