// SPDX-License-Identifier: MIT
#include "finetune/model/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/nearest.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/base/trash_safe.h"
#include "finetune/model/nf4_files.h"
#include "finetune/tensor/model_tensors.h"
#include "model/adapter_files.h"

namespace finetune {
namespace {

// Returns the newest snapshot of "org/name" in the cache of Hugging Face's libraries.
std::string find_in_hub_cache(const std::string& name) {
  FileSystem& files = FileSystem::local();
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::string(value == nullptr ? "" : value);
  };
  std::string cache = variable("HF_HUB_CACHE");
  if (cache.empty() && !variable("HF_HOME").empty()) cache = variable("HF_HOME") + "/hub";
  if (cache.empty()) cache = variable("HOME") + "/.cache/huggingface/hub";
  std::string folder = "models--" + name;
  for (size_t slash; (slash = folder.find('/')) != std::string::npos;) {
    folder.replace(slash, 1, "--");
  }
  const std::string model = join_path(cache, folder);
  const std::string reference = join_path(model, "refs/main");
  if (!files.exists(reference)) return "";
  std::string revision = files.read_all(reference, 4096);
  while (!revision.empty() && revision.back() <= ' ') revision.pop_back();
  const std::string snapshot = join_path(join_path(model, "snapshots"), revision);
  return files.exists(snapshot) ? snapshot : "";
}

bool is_hub_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// Whether the text has the form "name" or "owner/name".
bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  const std::string owner = name.substr(0, slash);
  const std::string model = slash == std::string::npos ? owner : name.substr(slash + 1);
  const auto is_word = [](const std::string& word) {
    return !word.empty() && word.front() != '.' &&
           std::all_of(word.begin(), word.end(), is_hub_char);
  };
  return is_word(owner) && is_word(model);
}

// Whether a path was meant: the owner part of the name is an existing folder, or a usual name of
// one.
bool is_in_folder(const std::string& name, const std::string& base) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return false;
  FileSystem& files = FileSystem::local();
  const std::string owner = name.substr(0, slash);
  for (const char* usual : {"runs", "output", "outputs", "results", "checkpoints"}) {
    if (owner == usual) return true;
  }
  return files.exists(owner) || (!base.empty() && files.exists(join_path(base, owner)));
}

// Returns what to do about a folder without a model: a run that is not finished has checkpoints.
std::string what_to_name_instead(const std::string& folder) {
  const std::string advice = "name a folder that save_pretrained or a run wrote";
  if (FileSystem::local().type(folder) != FileType::kDirectory) return advice;
  const std::string prefix = "checkpoint-";
  int64_t newest = -1;
  for (const std::string& name : FileSystem::local().list(folder)) {
    const std::string step = name.starts_with(prefix) ? name.substr(prefix.size()) : "";
    const bool is_step = !step.empty() && step.size() < 18 &&
                         step.find_first_not_of("0123456789") == std::string::npos;
    if (is_step) newest = std::max<int64_t>(newest, std::stoll(step));
  }
  if (newest < 0) return advice;
  return "the run in it is not finished: name one of its checkpoints, such as '" +
         join_path(folder, prefix + std::to_string(newest)) + "'";
}

// Returns why an existing path of another kind is no model folder; empty if nothing is known.
std::string why_no_model(const std::string& path) {
  FileSystem& files = FileSystem::local();
  const auto is_gguf = [](const std::string& name) { return name.ends_with(".gguf"); };
  const std::string of_gguf =
      " is in GGUF, the format of llama.cpp, which cannot be read; name the folder of the original "
      "model, with config.json and safetensors";
  if (is_gguf(path)) return "'" + path + "'" + of_gguf;
  if (files.type(path) != FileType::kDirectory) return "";
  const std::vector<std::string> names = files.list(path);
  const auto found = std::ranges::find_if(names, is_gguf);
  return found == names.end() ? "" : "'" + join_path(path, *found) + "'" + of_gguf;
}

// Returns " (did you mean 'm/bert'?)" from the names in the parent folder of a missing path, or "".
std::string nearest_folder(const std::string& path, const std::string& base) {
  FileSystem& files = FileSystem::local();
  for (const std::string& start : {std::string(), base}) {
    const std::string whole = start.empty() ? path : join_path(start, path);
    const std::string parent = parent_path(whole);
    if (files.type(parent) != FileType::kDirectory) continue;
    const std::string near = nearest_name(file_name(whole), files.list(parent));
    if (near.empty()) continue;
    const std::string shown =
        path.find('/') == std::string::npos ? near : join_path(parent_path(path), near);
    return " (did you mean '" + shown + "'?)";
  }
  return "";
}

}  // namespace

std::string resolve_model_folder(const std::string& name, const std::string& where,
                                 const std::string& base) {
  FileSystem& files = FileSystem::local();
  const auto has = [&](const char* file) { return files.exists(join_path(name, file)); };
  if (has(kConfigFile) || has(kAdapterConfigFile) || has(kLayaFile) || has(kTokenizerFile) ||
      has(kVocabularyFile) || has(kVocabularyTextFile) ||
      std::ranges::any_of(kSentencePieceFiles, has)) {
    return name;
  }
  if (const std::string why = why_no_model(name); !why.empty()) {
    throw Error(ErrorKind::kConfig, where + ": " + why);
  }
  if (name.find("://") != std::string::npos) {
    throw Error(ErrorKind::kConfig, where + ": '" + name +
                                        "' is an address, and nothing is downloaded; fetch the "
                                        "model with 'hf download OWNER/NAME' and name it so");
  }
  if (files.exists(name)) {
    throw Error(ErrorKind::kConfig, where + ": '" + name +
                                        "' holds no config.json and no tokenizer; " +
                                        what_to_name_instead(name));
  }
  const std::string near = nearest_folder(name, base);
  const std::string cached = is_hub_name(name) ? find_in_hub_cache(name) : "";
  if (!cached.empty()) return cached;
  if (!is_hub_name(name) || is_in_folder(name, base)) {
    throw Error(ErrorKind::kConfig, where + ": there is no folder '" + name + "'" + near +
                                        "; name a folder that save_pretrained or a run wrote");
  }
  throw Error(ErrorKind::kConfig, where + ": there is no folder '" + name + "'" + near +
                                      ", and the local Hugging Face cache does not hold a model of "
                                      "that name; check the path, or fetch it with: hf download " +
                                      name + " (hf is in the package huggingface_hub)");
}

std::string adapter_base(const std::string& folder, const nn::LoraConfig& lora) {
  const std::string where = "'" + join_path(folder, kAdapterConfigFile) + "'";
  if (lora.base_model_name_or_path.empty()) {
    throw Error(ErrorKind::kData, where +
                                      " names no base model; write its folder there as "
                                      "base_model_name_or_path");
  }
  try {
    const std::string base = resolve_model_folder(lora.base_model_name_or_path, where);
    if (!read_adapter_config(base)) return base;
  } catch (const Error& error) {
    throw Error(ErrorKind::kData,
                std::string(error.what()) +
                    "; it is the base of the adapter: put it there, or write its new folder in "
                    "adapter_config.json as base_model_name_or_path");
  }
  throw Error(ErrorKind::kData,
              where + ": the base '" + lora.base_model_name_or_path + "' is an adapter itself");
}

std::string config_folder(const std::string& folder) {
  const std::optional<nn::LoraConfig> lora = read_adapter_config(folder);
  return lora ? adapter_base(folder, *lora) : folder;
}

// How the run that wrote an adapter kept its base, as its record says.
void read_four_bits(const std::string& folder, BaseFormat& format) {
  const std::string path = join_path(folder, kFinetuneStateFile);
  if (!FileSystem::local().exists(path)) return;
  const nlohmann::ordered_json state = read_json_file(path, ErrorKind::kData);
  const auto keys = state.is_object() ? state.find("config") : state.end();
  if (!state.is_object() || keys == state.end() || !keys->is_object()) return;
  const auto is_true = [&](const char* key) {
    const auto found = keys->find(key);
    return found != keys->end() && (*found == true || *found == "true");
  };
  if (!is_true("load_in_4bit")) return;
  format.matrices = is_true("use_bnb_nested_quant") ? WeightFormat::kNf4Nested : WeightFormat::kNf4;
  const auto type = keys->find("dtype");
  for (const WeightFormat one :
       {WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kFloat16}) {
    if (type != keys->end() && *type == name_of(one)) format.weights = one;
  }
  const auto skipped = keys->find("llm_int8_skip_modules");
  if (skipped == keys->end() || !skipped->is_array()) return;
  for (const auto& name : *skipped) {
    if (name.is_string()) format.skipped.push_back(name.get<std::string>());
  }
}

BaseFormat base_format(const ModelConfig& config, const std::string& folder) {
  if (!config.lora) return {};
  const ModelTensors tensors = load_model_tensors(FileSystem::local(), config_folder(folder),
                                                  /*maps=*/false, stored_names(config));
  const Nf4Files quantized(tensors);
  BaseFormat format;
  if (config.is_nf4) format.matrices = WeightFormat::kNf4;
  std::set<DType> types;
  bool has_codes = false;
  for (const TensorInfo& info : tensors.tensors()) {
    has_codes = has_codes || quantized.has(info.name);
    if (tensors.is_mxfp4(info.name)) {
      format.mxfp4.push_back(info.name);
      continue;
    }
    if (quantized.is_part(info.name) || quantized.has(info.name)) continue;
    types.insert(info.dtype);
    if (config.is_nf4) format.skipped.push_back(info.name.substr(0, info.name.rfind('.')));
  }
  if ((config.is_nf4 && !has_codes) || (config.is_mxfp4 && format.mxfp4.empty())) {
    throw Error(ErrorKind::kData,
                "'" + config_folder(folder) +
                    "' holds whole weights, but its config.json has a "
                    "quantization_config; they do not belong together: remove it, "
                    "or fetch the folder again");
  }
  if (types == std::set{DType::kBF16}) format.weights = WeightFormat::kBFloat16;
  if (types == std::set{DType::kF16}) format.weights = WeightFormat::kFloat16;
  if (!config.is_nf4) read_four_bits(folder, format);
  return format;
}

namespace {

// The weights of the model's base, by each of their names in a file.
std::map<std::string, Weight> base_weights(const Model& model) {
  std::map<std::string, Weight> weights;
  if (!model.config().lora) return weights;
  for (const Parameter& parameter : model.store().parameters()) {
    if (parameter.format.home == WeightHome::kBase) weights[parameter.name()] = parameter.handle;
  }
  for (const auto& [own, other] : tied_names(model.config())) {
    const auto found = weights.find(own);
    if (found != weights.end()) weights.emplace(other, found->second);
  }
  return weights;
}

// PEFT also saves the table of an embedding that has an adapter. Returns whether the tensor in the
// adapter's file is this weight of the base, in the type in which PEFT had it.
bool is_of_base(const Model& model, const Weight& weight, const Tensor& saved) {
  return saved.sizes() == weight.sizes() &&
         model.store().values(weight).to(saved.device(), saved.scalar_type()).equal(saved);
}

// Copies the tensors of one folder, without `left_out`.
LoadReport load_own_tensors(Model& model, const std::string& folder, const LoadOptions& options,
                            const std::map<std::string, Weight>& left_out = {}) {
  const auto files = interruptible_reads(shared_local_files(), "loading '" + folder + "'");
  const ModelTensors tensors =
      load_model_tensors(*files, folder, options.shares_files, stored_names(model.config()));
  const Nf4Files quantized(tensors);
  std::vector<std::string> names;
  for (const TensorInfo& info : tensors.tensors()) {
    if (quantized.is_part(info.name)) continue;
    const auto found = left_out.find(info.name);
    if (found == left_out.end()) {
      names.push_back(info.name);
    } else if (!is_of_base(model, found->second, tensors.read(info.name))) {
      throw Error(ErrorKind::kData,
                  folder + ": its tensor '" + info.name +
                      "' differs from the base's, whose weights an adapter does not change; name "
                      "the base that the adapter was trained on");
    }
  }
  const auto is_quantized = [&](const TensorInfo& info) { return quantized.has(info.name); };
  if (options.base_folder.empty() && !model.config().is_nf4 &&
      std::ranges::any_of(tensors.tensors(), is_quantized)) {
    throw Error(ErrorKind::kData, "'" + folder +
                                      "' holds weights of four bits, but its config.json has no "
                                      "quantization_config; they do not belong together");
  }
  const auto is_mxfp4 = [&](const TensorInfo& info) { return tensors.is_mxfp4(info.name); };
  const bool has_mxfp4 = std::ranges::any_of(tensors.tensors(), is_mxfp4);
  if (options.base_folder.empty() && has_mxfp4 && !model.config().is_mxfp4) {
    throw Error(ErrorKind::kData, "'" + folder +
                                      "' holds experts in MXFP4, but its config.json has no "
                                      "quantization_config of it; they do not belong together: "
                                      "fetch the folder again");
  }
  LoadOptions with_codes = options;
  with_codes.quantized = [&](const std::string& name) -> std::optional<QuantizedValues> {
    if (tensors.is_mxfp4(name)) {
      const auto [blocks, scales] = tensors.read_mxfp4(name);
      return QuantizedValues{.format = WeightFormat::kMxfp4,
                             .sizes = tensors.info(name).shape,
                             .codes = blocks,
                             .scales = scales,
                             .type = at::kBFloat16};
    }
    return quantized.has(name) ? std::optional(quantized.read(name)) : std::nullopt;
  };
  return load_weights(
      model, names, [&](const std::string& name) { return tensors.read(name); }, folder,
      with_codes);
}

// Loads the base, then the adapter.
LoadReport load_adapter(Model& model, const std::string& folder, const nn::LoraConfig& lora,
                        const LoadOptions& options) {
  // The base may have another number of labels than the adapter, which then has its own head.
  LoadOptions of_base = options;
  of_base.ignore_mismatched_sizes = true;
  LoadReport report = load_folder_weights(model, adapter_base(folder, lora), of_base);
  load_adapter_weights(model, folder);
  const auto is_trained = [&](const std::string& name) {
    return model.store().trains(model.store().weight(name));
  };
  std::erase_if(report.missing, is_trained);
  std::erase_if(report.mismatched,
                [&](const LoadReport::Mismatch& one) { return is_trained(one.name); });
  if (!report.mismatched.empty() && !options.ignore_mismatched_sizes) {
    throw Error(ErrorKind::kData,
                folder +
                    ": the base holds tensors of another shape than its config.json asks for: " +
                    report.mismatched.front().name);
  }
  return report;
}

}  // namespace

void load_trained_adapter(Model& model, const std::string& folder) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kCheckpoint, "'" + folder + "' " + why);
  };
  const std::optional<nn::LoraConfig> theirs = read_adapter_config(folder);
  if (!theirs) refuse("holds a whole model, and this run trains an adapter (use_peft)");
  const nn::LoraConfig& ours = *model.config().lora;
  const auto compare = [&](const char* key, const std::string& in_it, const std::string& here) {
    if (in_it == here) return;
    refuse(format_text("holds an adapter with {} {}, and this run has {}; write {}: {}", key, in_it,
                       here, key, in_it));
  };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const auto alphas = [](const nn::LoraConfig& lora) {
    std::string text = "{";
    for (const auto& [pattern, alpha] : lora.alpha_pattern) {
      text += (text.size() > 1 ? ", " : "") + pattern + ": " + format_number("%.17g", alpha);
    }
    return text + "}";
  };
  compare("lora_r", std::to_string(theirs->r), std::to_string(ours.r));
  compare("lora_alpha", format_number("%.17g", theirs->lora_alpha),
          format_number("%.17g", ours.lora_alpha));
  compare("lora_alpha_pattern", alphas(*theirs), alphas(ours));
  compare("use_rslora", flag(theirs->use_rslora), flag(ours.use_rslora));
  compare("use_dora", flag(theirs->use_dora), flag(ours.use_dora));
  load_adapter_weights(model, folder);
  const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder);
  for (const auto& [dtype, name] :
       {std::pair(DType::kBF16, "bfloat16"), {DType::kF16, "float16"}}) {
    const auto has_it = [wanted = dtype](const TensorInfo& info) { return info.dtype == wanted; };
    if (!std::ranges::any_of(tensors.tensors(), has_it)) continue;
    log::info(format_text("'{}' holds an adapter in {}: training continues from these values in {}",
                          folder, name, name_of(model.store().weight_format())));
  }
}

LoadReport load_folder_weights(Model& model, const std::string& folder,
                               const LoadOptions& options) {
  if (const std::optional<nn::LoraConfig> lora = read_adapter_config(folder)) {
    return load_adapter(model, folder, *lora, options);
  }
  const bool is_copied = !options.base_folder.empty();
  return load_own_tensors(model, is_copied ? options.base_folder : folder, options);
}

void load_adapter_weights(Model& model, const std::string& folder) {
  LoadReport report =
      load_own_tensors(model, folder, {.ignore_mismatched_sizes = true}, base_weights(model));
  if (!report.unexpected.empty()) {
    throw Error(ErrorKind::kData, folder + ": the base has no place for " +
                                      listed(report.unexpected) +
                                      "; it is the adapter of another model, or of weights that an "
                                      "adapter cannot have here");
  }
  std::vector<std::string> others;
  for (const LoadReport::Mismatch& mismatch : report.mismatched) {
    others.push_back(format_text("tensor '{}' has the shape {}, but {} and the base ask for {}",
                                 mismatch.name, shape_text(mismatch.folder_shape),
                                 kAdapterConfigFile, shape_text(mismatch.model_shape)));
  }
  if (!others.empty()) {
    throw Error(ErrorKind::kData,
                folder + ": " + listed(others, 4, "; ") + "; they do not belong together");
  }
  std::erase_if(report.missing, [&](const std::string& name) {
    return model.store().at(model.store().weight(name)).format.home == WeightHome::kBase;
  });
  if (!report.missing.empty()) {
    throw Error(ErrorKind::kData, folder + " lacks " + listed(report.missing) +
                                      ", which its adapter_config.json or the run's keys ask for; "
                                      "it is the adapter of other modules");
  }
}

}  // namespace finetune
