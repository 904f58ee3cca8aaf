// SPDX-License-Identifier: MIT
#include "finetune/model/model_folder.h"

#include <cstdlib>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune {
namespace {

// The newest snapshot of "org/name" in the cache that Hugging Face's libraries share.
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

}  // namespace

std::string resolve_model_folder(const std::string& name, const std::string& where) {
  FileSystem& files = FileSystem::local();
  for (const char* file : {"config.json", "tokenizer.json", "vocab.json", "vocab.txt",
                           "sentencepiece.bpe.model", "spiece.model"}) {
    if (files.exists(join_path(name, file))) return name;
  }
  const bool is_folder = files.exists(name);
  if (!is_folder && name.find(' ') == std::string::npos && !name.starts_with("/") &&
      !name.starts_with(".")) {
    const std::string cached = find_in_hub_cache(name);
    if (!cached.empty()) return cached;
    throw Error(ErrorKind::kConfig, where + ": there is no folder '" + name +
                                        "', and the local Hugging Face cache does not hold a model "
                                        "of that name; fetch it with: hf download " +
                                        name);
  }
  throw Error(ErrorKind::kConfig,
              where +
                  (is_folder ? ": '" + name + "' holds neither config.json nor a tokenizer"
                             : ": there is no folder '" + name + "'") +
                  "; name a folder as transformers saves it");
}

LoadReport load_folder_weights(Model& model, const std::string& folder,
                               const LoadOptions& options) {
  const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder);
  std::vector<std::string> names;
  for (const TensorInfo& info : tensors.tensors()) names.push_back(info.name);
  return load_weights(
      model, names, [&](const std::string& name) { return tensors.read(name); }, folder, options);
}

}  // namespace finetune
