// SPDX-License-Identifier: MIT
#include "train/setup/adapter.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/config/adapter_keys.h"
#include "finetune/config/techniques.h"
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

void add_module(const std::string& module, std::vector<std::string>& modules) {
  if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
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

// What the keys of an adapter ask for, and whether model and base are fit for it.
class AdapterSetup {
 public:
  explicit AdapterSetup(const LoadedConfig& config) : config_(config), args_(config.args) {}

  void add_adapter(const AssemblyRequest& request, StartingPoint& start) const {
    const bool trains = request.train;
    if (trains && start.model_config.lora) {
      refuse_key(config_, "model_name_or_path",
                 "'" + start.pretrained +
                     "' is an adapter; to continue it set use_peft: true, "
                     "adapter_name_or_path: " +
                     start.pretrained + " and model_name_or_path: " +
                     start.model_config.lora->base_model_name_or_path);
    }
    if (!args_.use_peft) {
      if (trains && start.model_config.is_nf4) {
        refuse_key(config_, "model_name_or_path",
                   "'" + start.pretrained +
                       "' holds weights of four bits, which cannot be trained; set use_peft: true, "
                       "or name the model's folder in 16 or 32 bits");
      }
      return;
    }
    if (start.pretrained.empty()) {
      refuse_key(config_, "use_peft",
                 "trains an adapter on a trained model; name its folder as model_name_or_path");
    }
    nn::LoraConfig lora =
        args_.adapter_name_or_path ? named_adapter(request.run_folder, start) : lora_of_keys();
    if (!args_.adapter_name_or_path) {
      for (const std::string& module :
           output_modules(start.model_config, task_of(args_.task).head(args_))) {
        add_module(module, lora.modules_to_save);
      }
    }
    if (lora.use_dora && args_.param_dtype != "float32") {
      refuse_key(config_, "param_dtype",
                 "has no place for DoRA's magnitudes, which change too little for " +
                     args_.param_dtype + "; leave it out: the base keeps its own type (dtype)");
    }
    // A path must be found from any folder; a name in Hugging Face's cache stays a name.
    const std::string& name = *args_.model_name_or_path;
    lora.base_model_name_or_path = start.pretrained == name
                                       ? std::filesystem::absolute(name).lexically_normal().string()
                                       : name;
    start.model_config.lora = std::move(lora);
  }

  void settle_base(DataParts& parts) const {
    if (!parts.model_config.lora) return;
    try {
      const std::optional<Head> head = task_of(args_.task).head(args_);
      note_tied_embedding(parts.model_config, head, parameter_shapes(parts.model_config, head));
      train_what_base_lacks(head, parts);
    } catch (const nn::LoraError& error) {
      refuse_key(config_, error.key(), error.what());
    }
    choose_base_format(parts);
  }

  void choose_base_format(DataParts& parts) const {
    const FourBits four_bits = four_bits_of(args_);
    const bool is_auto = four_bits == FourBits::kAuto;
    BaseFormat& base = parts.base_format;
    base = base_format(parts.model_config, parts.pretrained);
    // The keys decide, or what the run of the folder did.
    if (!parts.model_config.is_nf4 && !is_auto) base.matrices.reset();
    if (args_.dtype == "float32") base.weights = WeightFormat::kFloat32;
    if (args_.dtype == "bfloat16") base.weights = WeightFormat::kBFloat16;
    if (args_.dtype == "float16") base.weights = WeightFormat::kFloat16;
    for (const char* key : {"use_bnb_nested_quant", "llm_int8_skip_modules"}) {
      if (!config_.is_set(key)) continue;
      if (parts.model_config.is_nf4) check_same_quantization(key, parts);
      if (four_bits == FourBits::kNo) {
        log::warning(config_.where(key) + ": no effect where load_in_4bit is not true: " + key);
      }
    }
    if (four_bits == FourBits::kNo || parts.model_config.is_nf4) return;
    check_four_bits(parts);
    if (has_transposed_linear(parts.model_config)) return;
    const std::optional<WeightFormat> before = base.matrices;
    base.matrices = args_.use_bnb_nested_quant ? WeightFormat::kNf4Nested : WeightFormat::kNf4;
    base.skipped = args_.llm_int8_skip_modules;
    check_skipped_layers(parts);
    if (!is_auto) return;
    parts.four_bits = base.matrices;
    base.matrices = before;
  }

 private:
  [[nodiscard]] nn::LoraConfig lora_of_keys() const {
    nn::LoraConfig lora;
    lora.r = args_.lora_r;
    lora.lora_alpha = args_.lora_alpha;
    lora.lora_dropout = args_.lora_dropout;
    lora.use_rslora = args_.use_rslora;
    lora.use_dora = args_.use_dora;
    lora.target_modules = module_names(args_.lora_target_modules);
    lora.exclude_modules = module_names(args_.lora_exclude_modules);
    lora.target_parameters = args_.lora_target_parameters;
    lora.rank_pattern = lora_ranks(config_);
    lora.alpha_pattern = lora_alphas(config_);
    lora.layers_to_transform = lora_layers(config_);
    lora.modules_to_save = args_.lora_modules_to_save;
    lora.ensure_weight_tying = args_.lora_ensure_weight_tying;
    lora.bias = args_.lora_bias;
    // As the adapter_config.json of a model of images and text names them.
    for (nn::ModuleNames* modules : {&lora.target_modules, &lora.exclude_modules}) {
      if (modules->is_pattern) continue;
      for (std::string& name : modules->names) name = name_in_language_model(name);
    }
    for (std::string& name : lora.modules_to_save) name = name_in_language_model(name);
    return lora;
  }

  // The parameters that an adapter adds to a model, and whether each of the others trains.
  [[nodiscard]] std::vector<std::pair<std::string, std::vector<int64_t>>> trained_shapes(
      ModelConfig model, const nn::LoraConfig& lora) const {
    model.lora = lora;
    std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
    for (ParameterShape& shape : parameter_shapes(model, task_of(args_.task).head(args_))) {
      if (shape.trains) shapes.emplace_back(std::move(shape.name), std::move(shape.sizes));
    }
    return shapes;
  }

  // Refuses a key whose value is not that of the adapter that the run continues. Names of modules
  // are compared by the layers that they give an adapter, because the file lists what all-linear
  // found.
  void check_same_adapter(const StartingPoint& start, const nn::LoraConfig& theirs) const {
    const nn::LoraConfig keys = lora_of_keys();
    const std::string rule = "; the adapter's decides: leave the key out, or write the same";
    const auto compare = [&](const char* key, const auto& own, const auto& in_file,
                             const auto& text_of) {
      if (!config_.is_set(key) || own == in_file) return;
      refuse_key(config_, key,
                 "is " + text_of(own) + ", and " + text_of(in_file) +
                     " in the adapter_config.json of '" + start.adapter + "'" + rule);
    };
    const auto number = [](auto value) {
      return format_number("%.17g", static_cast<double>(value));
    };
    const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
    const auto text = [](const std::string& value) { return value; };
    const auto alphas = [](const auto& patterns) {
      Json json = Json::object();
      for (const auto& [pattern, alpha] : patterns) json[pattern] = alpha;
      return json.dump();
    };
    compare("lora_r", keys.r, theirs.r, number);
    compare("lora_alpha", keys.lora_alpha, theirs.lora_alpha, number);
    compare("lora_dropout", keys.lora_dropout, theirs.lora_dropout, number);
    compare("lora_bias", keys.bias, theirs.bias, text);
    compare("lora_alpha_pattern", keys.alpha_pattern, theirs.alpha_pattern, alphas);
    compare("lora_ensure_weight_tying", keys.ensure_weight_tying, theirs.ensure_weight_tying, flag);
    compare("use_rslora", keys.use_rslora, theirs.use_rslora, flag);
    compare("use_dora", keys.use_dora, theirs.use_dora, flag);
    const auto compare_layers = [&](const char* key, const auto& change) {
      if (!config_.is_set(key)) return;
      nn::LoraConfig other = theirs;
      change(other);
      try {
        if (trained_shapes(start.model_config, other) ==
            trained_shapes(start.model_config, theirs)) {
          return;
        }
      } catch (const Error& error) {
        refuse_key(config_, key, std::string(error.what()) + rule);
      }
      refuse_key(
          config_, key,
          "names other layers than the adapter_config.json of '" + start.adapter + "'" + rule);
    };
    compare_layers("lora_target_modules",
                   [&](nn::LoraConfig& other) { other.target_modules = keys.target_modules; });
    compare_layers("lora_exclude_modules",
                   [&](nn::LoraConfig& other) { other.exclude_modules = keys.exclude_modules; });
    compare_layers("lora_target_parameters", [&](nn::LoraConfig& other) {
      other.target_parameters = keys.target_parameters;
    });
    compare_layers("lora_layers_to_transform", [&](nn::LoraConfig& other) {
      other.layers_to_transform = keys.layers_to_transform;
    });
    compare_layers("lora_rank_pattern",
                   [&](nn::LoraConfig& other) { other.rank_pattern = keys.rank_pattern; });
    compare_layers("lora_modules_to_save", [&](nn::LoraConfig& other) {
      other.modules_to_save = keys.modules_to_save;
      for (const std::string& module :
           output_modules(start.model_config, task_of(args_.task).head(args_))) {
        add_module(module, other.modules_to_save);
      }
    });
  }

  // Reads the adapter that a new run continues. A resumed one needs its configuration alone.
  [[nodiscard]] nn::LoraConfig named_adapter(const std::string& run_folder,
                                             StartingPoint& start) const {
    constexpr char kKey[] = "adapter_name_or_path";
    try {
      start.adapter = named_folder(config_, kKey, *args_.adapter_name_or_path);
    } catch (const Error& error) {
      if (run_folder.empty() || error.kind() != ErrorKind::kConfig) throw;
      log::debug(error.what());
      start.adapter = run_folder;
    }
    std::optional<nn::LoraConfig> lora = read_adapter_config(start.adapter);
    if (!lora) refuse_key(config_, kKey, "'" + start.adapter + "' holds no adapter");
    check_same_adapter(start, *lora);
    return *std::move(lora);
  }

  // An adapter's folder holds no frozen weights, so that what its base lacks (a pooler, after
  // masked language modelling) is trained whole and saved. PEFT leaves it out, and its models then
  // have other weights there at each start.
  void train_what_base_lacks(std::optional<Head> head, DataParts& parts) const {
    if (config_folder(parts.pretrained) != parts.pretrained) return;  // a run's own adapter
    nn::LoraConfig& lora = *parts.model_config.lora;
    std::vector<std::string> modules;
    const std::vector<std::string> missing =
        missing_in_base(parts.model_config, head, parts.pretrained);
    for (const std::string& name : missing) add_module(name.substr(0, name.rfind('.')), modules);
    if (modules.empty()) return;
    if (predicts_words(head)) {
      refuse_key(config_, "model_name_or_path",
                 "'" + parts.pretrained + "' lacks weights that an adapter does not hold: " +
                     listed(missing) + "; train the whole model first");
    }
    log::info("adapter: the base lacks " + join(modules, ", ") + ": trained whole");
    for (const std::string& module : modules) add_module(module, lora.modules_to_save);
  }

  // GPT-2's matrices are stored as [in, out], which bitsandbytes does not quantise either.
  void check_four_bits(const DataParts& parts) const {
    if (!has_transposed_linear(parts.model_config) || four_bits_of(args_) == FourBits::kAuto)
      return;
    refuse_key(config_, "load_in_4bit",
               "is not available for " + parts.model_config.model_type +
                   ", whose matrices are stored as [in, out]; dtype: bfloat16 halves the base");
  }

  // Refuses a key whose value is not what the quantized folder says.
  void check_same_quantization(const char* key, const DataParts& parts) const {
    const std::string path = join_path(config_folder(parts.pretrained), kConfigFile);
    const Json file = read_json_file(path).value("quantization_config", Json::object());
    const bool is_flag = key == std::string_view("use_bnb_nested_quant");
    Json own = args_.use_bnb_nested_quant;
    Json in_file = file.value("bnb_4bit_use_double_quant", Json(false));
    if (!is_flag) {
      const auto sorted = [](std::vector<std::string> names) {
        std::ranges::sort(names);
        return Json(names);
      };
      own = sorted(args_.llm_int8_skip_modules);
      const Json names = file.value("llm_int8_skip_modules", Json());
      in_file = sorted(names.is_array() ? names.get<std::vector<std::string>>()
                                        : std::vector<std::string>());
    }
    if (own == in_file) return;
    refuse_key(config_, key,
               "is " + own.dump() + ", and " + in_file.dump() + " in '" + path +
                   "', whose weights are quantized already; leave the key out, or write the same");
  }

  // A name that finds nothing is a mistake, and so is a base without anything to quantise.
  void check_skipped_layers(const DataParts& parts) const {
    const std::vector<ParameterShape> shapes =
        parameter_shapes(parts.model_config, task_of(args_.task).head(args_));
    for (const std::string& name : parts.base_format.skipped) {
      const BaseFormat alone = {.matrices = WeightFormat::kNf4, .skipped = {name}};
      const auto is_kept = [&](const ParameterShape& shape) {
        return shape.role == ParameterRole::kLinear &&
               alone.of(shape.name, shape.role) == alone.weights;
      };
      if (!name.empty() && std::ranges::any_of(shapes, is_kept)) continue;
      refuse_key(config_, "llm_int8_skip_modules",
                 "'" + name +
                     "' is the beginning or end of no linear layer's name that would be "
                     "quantized; output layers and embeddings never are");
    }
    const auto is_quantized = [&](const ParameterShape& shape) {
      return shape.is_base &&
             parts.base_format.of(shape.name, shape.role) == parts.base_format.matrices;
    };
    if (std::ranges::any_of(shapes, is_quantized)) return;
    refuse_key(config_, "load_in_4bit", "nothing is left to quantize; see llm_int8_skip_modules");
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
};

}  // namespace

void add_adapter(const LoadedConfig& config, const AssemblyRequest& request, StartingPoint& start) {
  AdapterSetup(config).add_adapter(request, start);
}

void settle_base(const LoadedConfig& config, DataParts& parts) {
  AdapterSetup(config).settle_base(parts);
}

void choose_base_format(const LoadedConfig& config, DataParts& parts) {
  AdapterSetup(config).choose_base_format(parts);
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

void check_base_of_continued(const KeyLocations& keys, const DataParts& parts,
                             const TokenCacheOptions& cache) {
  const std::optional<FileRecord> record = recorded_base(parts.adapter);
  const std::string contents = record ? hash_if_other(parts.pretrained, *record, cache) : "";
  if (contents.empty()) return;
  refuse_key(keys, "adapter_name_or_path",
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
