// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "export/compare_logits.h"
#include "export/gguf_model.h"
#include "export/gguf_tokenizer.h"
#include "export/staged_output.h"
#include "finetune/base/error.h"
#include "finetune/base/printable.h"
#include "finetune/export/export.h"

namespace finetune {
namespace {

GgmlType ggml_type(const std::string& outtype, at::ScalarType stored) {
  if (outtype == "auto") {
    return stored == at::kHalf       ? GgmlType::kF16
           : stored == at::kBFloat16 ? GgmlType::kBF16
                                     : GgmlType::kF32;
  }
  for (const GgmlType type :
       {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0}) {
    if (outtype == traits_of(type).name) return type;
  }
  throw Error(ErrorKind::kUsage, "--outtype " + shortened(outtype, 40) +
                                     ": a GGUF file holds auto, f32, f16, bf16, q8_0 or q4_0");
}

// Ollama's recipe of a model: it takes the chat template from the file, and stops at these texts.
std::string model_file(const GgufMetadata& metadata, const std::vector<int64_t>& ends,
                       const std::string& out) {
  std::string text = "FROM ./" + file_name(out) + "\n";
  const auto find = [&](const std::string& name) -> const GgufMetadata::Value* {
    const auto found =
        std::ranges::find(metadata.all(), name, [](const auto& one) { return one.first; });
    return found == metadata.all().end() ? nullptr : &found->second;
  };
  const auto* tokens = find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return text;
  const auto& texts = std::get<std::vector<std::string>>(*tokens);
  std::vector<size_t> stops;
  const auto add = [&](int64_t id) {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= texts.size() || std::ranges::count(stops, index) > 0) return;
    stops.push_back(index);
    text += "PARAMETER stop " + nlohmann::json(texts[index]).dump() + "\n";
  };
  for (const char* name : {"eos_token_id", "eot_token_id"}) {
    const auto* id = find(std::string("tokenizer.ggml.") + name);
    if (id != nullptr) add(std::get<uint32_t>(*id));
  }
  for (const int64_t id : ends) add(id);
  return text;
}

// Copies the weights of the file that was written, as its types hold them.
void load_gguf(Model& model, const GgufModel& gguf, const std::string& path) {
  const auto file = FileSystem::local().open(path);
  const std::vector<uint64_t> offsets = gguf_offsets(gguf.metadata, gguf.tensors);
  struct Position {
    size_t tensor = 0;
    std::optional<int64_t> part = {};
  };
  std::map<std::string, Position> positions;
  std::vector<std::string> names;
  std::map<std::string, Tensor> from_views;
  for (size_t i = 0; i < gguf.tensors.size(); ++i) {
    const GgufTensor& tensor = gguf.tensors[i];
    if (tensor.view) {
      Tensor& whole = from_views[tensor.source];
      if (!whole.defined()) whole = at::empty(tensor.whole);
      tensor.view(whole).copy_(read_gguf_tensor(*file, tensor, offsets[i]));
    }
    if (!tensor.restored) continue;
    const std::vector<std::string>& parts = gguf.tensors[i].parts;
    for (size_t part = 0; part < parts.size(); ++part) {
      positions[parts[part]] = {i, static_cast<int64_t>(part)};
    }
    if (parts.empty()) positions[gguf.tensors[i].source] = {i};
  }
  for (const auto& [name, position] : positions) names.push_back(name);
  for (const auto& [name, value] : gguf.in_metadata) names.push_back(name);
  for (const auto& [name, value] : from_views) names.push_back(name);
  const auto read = [&](const std::string& name) {
    const auto found = gguf.in_metadata.find(name);
    if (found != gguf.in_metadata.end()) return found->second;
    const auto view = from_views.find(name);
    if (view != from_views.end()) return view->second;
    const Position& position = positions.at(name);
    const GgufTensor& tensor = gguf.tensors[position.tensor];
    const Tensor whole = tensor.restored(read_gguf_tensor(*file, tensor, offsets[position.tensor]));
    return position.part ? whole[*position.part] : whole;
  };
  (void)load_weights(model, names, read, path);
}

bool has_content(const std::string& path, const std::string& text) {
  const auto file = FileSystem::local().open(path);
  return file->size() == text.size() && FileSystem::local().read_all(path) == text;
}

}  // namespace

ExportReport export_gguf(const MergedModel& model, const std::string& out,
                         const ExportOptions& options) {
  const GgmlType type = ggml_type(options.outtype, model.dtype);
  GgufModel gguf = gguf_model(model, type);
  add_tokenizer(gguf.metadata, model);
  const std::string recipe =
      out.substr(0, out.size() - std::string_view(".gguf").size()) + ".Modelfile";
  const std::string recipe_text = model_file(gguf.metadata, end_token_ids(model), out);
  const FileType found = FileSystem::local().type(recipe);
  // An export that was killed before the file got its name leaves the same recipe.
  const bool is_own =
      found == FileType::kFile && (options.overwrite || has_content(recipe, recipe_text));
  if (found != FileType::kMissing && !is_own) {
    throw Error(ErrorKind::kUsage,
                "'" + recipe + "', which goes with the file, exists; choose another name, or " +
                    "replace it with --overwrite");
  }
  if (FileSystem::local().type(out) == FileType::kDirectory) {
    throw Error(ErrorKind::kUsage, "'" + out + "' is a folder; choose another name");
  }
  StagedOutput output(out, options.overwrite, gguf_bytes(gguf.metadata, gguf.tensors));
  const auto file = output.create();
  write_gguf(*file, gguf.metadata, gguf.tensors);
  file->sync();
  file->close();
  if (options.verify) output.verify();
  ExportReport report = {.bytes = output.bytes(),
                         .tensors = std::ssize(gguf.tensors),
                         .type = std::string(traits_of(type).name)};
  if (options.compares_logits) {
    report.logits = compare_logits(
        model, model.config, [&](Model& exported) { load_gguf(exported, gguf, output.path()); });
  }
  // The file gets its name last, so that where it is the export is complete.
  FileSystem::local().make_directories(parent_path(recipe));
  FileSystem::local().write_atomically(recipe, recipe_text);
  output.commit();
  return report;
}

}  // namespace finetune
