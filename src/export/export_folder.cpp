// SPDX-License-Identifier: MIT
#include <ATen/ops/eye.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "export/compare_logits.h"
#include "export/nf4_tensors.h"
#include "export/staged_output.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/export/export.h"
#include "finetune/model/embedding_files.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// The type of all tensors; nullopt: each keeps its own.
std::optional<at::ScalarType> parse_type(const std::string& outtype) {
  if (outtype == "auto" || outtype == "nf4") return std::nullopt;
  if (outtype == "f32") return at::kFloat;
  if (outtype == "f16") return at::kHalf;
  if (outtype == "bf16") return at::kBFloat16;
  throw Error(ErrorKind::kUsage,
              "--outtype " + shortened(outtype, 40) +
                  ": a folder holds auto, f32, f16, bf16 or nf4; q8_0 and q4_0 are "
                  "types of GGUF: let OUT end in .gguf");
}

const char* dtype_text(at::ScalarType type) {
  return type == at::kHalf ? "float16" : type == at::kBFloat16 ? "bfloat16" : "float32";
}

Json config_of(const MergedModel& model, at::ScalarType type) {
  return parse_json(model_config_json(model.config, model.architecture, dtype_text(type)),
                    kConfigFile);
}

// Of a model of images and text, whose language model alone has changed.
Json whole_config_of(const MergedModel& model, at::ScalarType type) {
  Json config = parse_json(model.whole_config, kConfigFile);
  const auto changes = [&](Json& own) {
    own.erase("torch_dtype");
    own["dtype"] = dtype_text(type);
    if (own.contains("tie_word_embeddings") || !model.config.tie_word_embeddings) {
      own["tie_word_embeddings"] = model.config.tie_word_embeddings;
    }
  };
  changes(config);
  changes(config.at("text_config"));
  return config;
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

bool is_quantized(const MergedTensor& tensor, const std::vector<std::string>& skipped) {
  const BaseFormat format = {.matrices = WeightFormat::kNf4, .skipped = skipped};
  const auto role = tensor.is_linear ? ParameterRole::kLinear : ParameterRole::kOther;
  return format.of(tensor.name, role) == WeightFormat::kNf4;
}

void check_nf4(const MergedModel& model) {
  if (model.head == Head::kDecision) {
    throw Error(ErrorKind::kUsage, "--outtype nf4: neither transformers nor laya reads a " +
                                       model.architecture +
                                       " in four bits; export bf16, or OUT.onnx with --quantize "
                                       "int8");
  }
  const auto is_expert = [](const MergedTensor& tensor) { return is_of_one_expert(tensor.name); };
  if (std::ranges::any_of(model.tensors, is_expert)) {
    throw Error(ErrorKind::kUsage, "--outtype nf4: transformers does not hold the experts of a " +
                                       model.config.model_type +
                                       " in four bits; export bf16, or a GGUF file of q4_0");
  }
  if (std::ranges::any_of(model.tensors, &MergedTensor::is_linear)) return;
  throw Error(ErrorKind::kUsage, "--outtype nf4: a " + model.config.model_type +
                                     " has no linear layer that bitsandbytes quantises");
}

// A merged model is no adapter, and its card should not say so.
std::string card_text(const std::string& card) {
  std::string text;
  size_t begin = 0;
  while (begin < card.size()) {
    const size_t end = std::min(card.find('\n', begin), card.size() - 1) + 1;
    std::string line = card.substr(begin, end - begin);
    begin = end;
    if (line == "library_name: peft\n") line = "library_name: transformers\n";
    text += line;
  }
  return text;
}

std::vector<std::string> files_with_weights(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names = files.list(folder);
  std::erase_if(names, [](const std::string& name) { return !goes_with_weights(name); });
  return names;
}

// Of sentence-transformers, which has a module's configuration in a folder.
void write_modules(const MergedModel& model, StagedOutput& output) {
  FileSystem& files = FileSystem::local();
  for (const std::string& folder : {model.folder, model.base}) {
    if (!files.exists(join_path(folder, kModulesFile))) continue;
    for (const std::string& name : files.list(folder)) {
      const std::string own = name + "/" + kConfigFile;
      const std::string path = join_path(folder, own);
      if (is_embedding_file_name(own) && files.exists(path))
        output.write(own, files.read_all(path));
    }
    return;
  }
}

// Of a decision model with Laya's head.
void write_laya_folders(const MergedModel& model, StagedOutput& output) {
  FileSystem& files = FileSystem::local();
  if (!model.config.laya) return;
  output.write(kLayaEncoderFile, encoder_config_json(model.config));
  const std::string own = join_path(model.folder, kLayaTokenizerFolder);
  if (files.type(own) != FileType::kDirectory) return;
  for (const std::string& name : files.list(own)) {
    output.write(join_path(kLayaTokenizerFolder, name), files.read_all(join_path(own, name)));
  }
}

// Lets the vectors have their first dimensions alone: by fewer rows of the last dense layer, or by
// a new one, which returns them as they are.
MergedModel with_dims(MergedModel model, int64_t dims) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, format_text("--dims {}: {}", dims, why));
  };
  EmbeddingConfig& embedding = model.config.embedding;
  if (model.head != Head::kEmbedding || embedding.pooling_mode.empty()) {
    refuse("'" + model.folder + "' is no embedding model");
  }
  const int64_t all = embedding_dimension(model.config);
  if (embedding.truncate_dim && dims > *embedding.truncate_dim) {
    refuse(format_text("truncate_dim keeps {} dimensions of the vectors", *embedding.truncate_dim));
  }
  if (dims < 1 || dims >= all) refuse(format_text("the vectors have {} dimensions", all));
  if (embedding.dense.empty()) {
    embedding.dense.push_back({.module = "2_Dense",
                               .in_features = model.config.hidden_size,
                               .bias = false,
                               .activation_function = "Identity"});
    const auto rows = [size = model.config.hidden_size](int64_t first, int64_t count) {
      return at::eye(size).narrow(0, first, count).clone();
    };
    model.tensors.push_back({.name = "2_Dense.linear.weight",
                             .shape = {dims, model.config.hidden_size},
                             .stored = model.dtype,
                             .rows = rows});
  }
  embedding.dense.back().out_features = dims;
  for (MergedTensor& tensor : model.tensors) {
    if (module_folder(tensor.name) == embedding.dense.back().module) tensor.shape[0] = dims;
  }
  return model;
}

// additional_chat_templates/NAME.jinja
void write_more_templates(const std::string& folder, StagedOutput& output) {
  FileSystem& files = FileSystem::local();
  const std::string from = join_path(folder, kMoreChatTemplates);
  if (files.type(from) != FileType::kDirectory) return;
  for (const std::string& name : files.list(from)) {
    if (!name.ends_with(".jinja")) continue;
    output.write(join_path(kMoreChatTemplates, name), files.read_all(join_path(from, name)));
  }
}

// Tokenizer, model card and the other files of the folder.
void write_other_files(const MergedModel& model, StagedOutput& output) {
  FileSystem& files = FileSystem::local();
  std::vector<std::string> names = files_with_weights(files, model.folder);
  const auto has_tokenizer = [](const std::vector<std::string>& list) {
    return std::ranges::any_of(list, [](const auto& name) { return is_tokenizer_file_name(name); });
  };
  for (const std::string& name : names) {
    const std::string text = files.read_all(join_path(model.folder, name));
    output.write(name, name == checkpoint::kModelCardFile ? card_text(text) : text);
  }
  // An adapter's folder of another program may lack what its base has.
  for (const std::string& name : files_with_weights(files, model.base)) {
    const bool is_of_tokenizer = is_tokenizer_file_name(name) || name == kChatTemplateFile;
    const bool is_missing = std::ranges::find(names, name) == names.end();
    if (is_missing && name != checkpoint::kModelCardFile &&
        !(is_of_tokenizer && has_tokenizer(names))) {
      output.write(name, files.read_all(join_path(model.base, name)));
    }
  }
  write_modules(model, output);
  write_laya_folders(model, output);
  write_more_templates(has_tokenizer(names) ? model.folder : model.base, output);
}

}  // namespace

ExportReport export_folder(const MergedModel& source, const std::string& out,
                           const ExportOptions& options) {
  if (source.head == Head::kEmbedding && !source.config.embedding.refusal.empty()) {
    throw Error(ErrorKind::kData, source.config.embedding.refusal);
  }
  const MergedModel model = options.dims ? with_dims(source, *options.dims) : source;
  const bool is_nf4 = options.outtype == "nf4";
  const auto type = parse_type(options.outtype);
  if (is_nf4) check_nf4(model);
  if (is_nf4 && !model.whole_config.empty()) {
    throw Error(ErrorKind::kUsage,
                "--outtype nf4: the base is a model of images and text, which has no four bits "
                "here; choose another type");
  }
  const Nf4Tensors nf4(options.nested);
  LazyTensors tensors;
  std::vector<std::string> whole;  // modules
  int64_t stacks = 0;              // of experts
  for (const MergedTensor& tensor : model.tensors) {
    if (is_nf4 && is_quantized(tensor, options.skipped)) {
      const at::ScalarType from = options.quantized_from.value_or(tensor.stored);
      nf4.add(tensor, from, dtype_text(from), tensors);
    } else {
      tensors.push_back(in_type(tensor, type.value_or(tensor.stored)));
      const auto other = model.names_in_whole.find(tensor.name);
      if (other != model.names_in_whole.end()) tensors.back().name = other->second;
      if (is_nf4 && tensor.shape.size() == 2 && tensor.name.ends_with(".weight")) {
        whole.push_back(module_of(tensor.name));
      }
      stacks += tensor.is_stack ? 1 : 0;
    }
  }
  for (const MergedTensor& tensor : model.other_tensors) {
    tensors.push_back(in_type(tensor, tensor.stored));
  }
  for (const auto& [own, other] : tied_names(model.config)) whole.push_back(module_of(other));
  if (is_nf4 && stacks > 0) {
    log::warning(
        format_text("the {} matrices of experts keep their type: transformers has no four "
                    "bits for them",
                    stacks));
  }
  uint64_t bytes = 0;
  for (const LazyTensor& tensor : tensors) bytes += tensor.bytes();
  FileSystem& files = FileSystem::local();
  if (files.type(out) == FileType::kFile) {
    throw Error(ErrorKind::kUsage, "'" + out + "' is a file; choose another name for the folder");
  }
  StagedOutput output(out, options.overwrite, bytes + (uint64_t{4} << 20), options.sync);
  const std::vector<ModelShard> shards = plan_shards(tensors);
  for (const ModelShard& shard : shards) {
    const auto file = output.create(shard.file_name);
    write_safetensors(*file, shard.tensors);
    file->sync();
    file->close();
  }
  if (const auto index = make_shard_index(shards)) output.write(kModelIndexFile, *index);
  const at::ScalarType stated = type.value_or(model.dtype);
  Json config =
      model.whole_config.empty() ? config_of(model, stated) : whole_config_of(model, stated);
  if (is_nf4) {
    config["quantization_config"] =
        nf4_quantization_config(dtype_text(stated), options.nested, whole);
  }
  output.write(kConfigFile, config.dump(2) + "\n");
  write_other_files(model, output);
  if (options.dims) {  // in place of those of the source
    for (const auto& [name, text] : embedding_files(model.config, model.config.max_length())) {
      const bool is_changed = name == kModulesFile || name.ends_with("_Dense/config.json");
      const bool is_truncated = name == kSentenceModelFile && model.config.embedding.truncate_dim;
      if (is_changed || is_truncated) output.write(name, text);
    }
  }
  if (!options.manifest_id.empty()) output.write_manifest(options.manifest_id);
  if (options.verify) output.verify();
  ExportReport report = {.bytes = output.bytes(),
                         .tensors = std::ssize(model.tensors),
                         .type = is_nf4 ? "nf4" : dtype_text(stated)};
  if (options.compares_logits) {
    ModelConfig written = model.config;
    written.is_nf4 = written.is_nf4 || is_nf4;
    report.logits = compare_logits(model, written, [&](Model& exported) {
      (void)load_folder_weights(exported, output.path());
    });
  }
  output.commit();
  return report;
}

}  // namespace finetune
