// SPDX-License-Identifier: MIT
#include "finetune/tensor/weight_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/tensor/safetensors_header.h"
#include "finetune/tensor/torch_archive.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = 100'000'000;
constexpr uint64_t kMaxModulesBytes = 1 << 20;
constexpr uint64_t kMaxPointerBytes = 1024;
constexpr std::string_view kPointerStart = "version https://git-lfs.github.com/";

struct Layout {
  const char* file;
  const char* index;
  const char* suffix;
};
constexpr std::array<Layout, 2> kLayouts = {{{kModelFile, kModelIndexFile, ".safetensors"},
                                             {kPickledModelFile, kPickledModelIndexFile, ".bin"}}};

// Files that users confuse with a model's weights, with advice.
struct Foreign {
  const char* file;
  const char* what;
  const char* advice;
};
constexpr std::array<Foreign, 4> kForeign = {
    {{"tf_model.h5", "TensorFlow's weights",
      "load it with transformers 4 (from_pretrained(..., from_tf=True)) and save_pretrained() it"},
     {"tf_model.h5.index.json", "TensorFlow's weights",
      "load it with transformers 4 (from_pretrained(..., from_tf=True)) and save_pretrained() it"},
     {"flax_model.msgpack", "Flax's weights",
      "load it with transformers 4 (from_pretrained(..., from_flax=True)) and save_pretrained() "
      "it"},
     {"adapter_model.bin", "a pickled adapter",
      "load it with peft and save_pretrained() it, which writes safetensors"}}};

bool is_shard_name(std::string_view name, std::string_view suffix) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return name.size() > suffix.size() && name.size() <= 255 && name.front() != '.' &&
         name.ends_with(suffix) && std::all_of(name.begin(), name.end(), allowed);
}

// Returns the folder in which Hugging Face's cache stores the files of the snapshot `folder`.
fs::path blobs_of(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    const fs::path model = at.parent_path().parent_path();
    if (at.parent_path().filename() == "snapshots" &&
        model.filename().string().starts_with("models--")) {
      return model / "blobs";
    }
  }
  return {};
}

bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Throws if a name in an index refers to a file outside the folder.
void check_stays_inside(const std::string& folder, const std::string& path,
                        const std::string& index) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path target = error ? fs::path() : fs::canonical(path, error);
  if (error) {
    throw Error(ErrorKind::kData, "'" + path + "' is missing, though '" + file_name(index) +
                                      "' names it; fetch the model again");
  }
  const fs::path blobs = blobs_of(root);
  if (!is_within(target, root) && (blobs.empty() || target.parent_path() != blobs)) {
    throw Error(ErrorKind::kData, "'" + path + "' is a link that leads out of its folder, to '" +
                                      target.string() + "'; put the file itself there");
  }
}

// Opening a pipe would wait forever; a clone without Git LFS has text files of a few lines instead
// of weights.
void check_is_file(FileSystem& files, const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw Error(ErrorKind::kData, "'" + path + "' is not a file" +
                                      (error ? " (" + error.message() + ")" : "") +
                                      "; fetch the model again");
  }
  std::string start(kPointerStart.size(), '\0');
  const std::unique_ptr<ReadableFile> file = files.open(path);
  if (file->size() < start.size() || file->size() > kMaxPointerBytes) return;
  file->read_at(0, start.data(), start.size());
  if (start == kPointerStart) {
    throw Error(ErrorKind::kData, "'" + path +
                                      "' is only Git LFS's pointer to the weights; run 'git lfs "
                                      "pull' in that folder");
  }
}

WeightFiles read_index(FileSystem& files, const std::string& folder, const Layout& layout) {
  WeightFiles weights{.index = join_path(folder, layout.index)};
  check_is_file(files, weights.index);
  for (const auto& [tensor, name] : parse_shard_index(files.read_all(weights.index, kMaxIndexBytes),
                                                      weights.index, layout.suffix)) {
    const std::string path = join_path(folder, name);
    weights.owners.emplace(tensor, path);
    weights.paths.push_back(path);
  }
  std::sort(weights.paths.begin(), weights.paths.end());
  weights.paths.erase(std::unique(weights.paths.begin(), weights.paths.end()), weights.paths.end());
  for (const std::string& path : weights.paths) {
    check_stays_inside(folder, path, weights.index);
    check_is_file(files, path);
  }
  return weights;
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& path,
                                                     std::string_view suffix) {
  JsonLimits limits;
  limits.max_bytes = kMaxIndexBytes;
  limits.max_depth = 8;
  const nlohmann::ordered_json index = parse_json(text, path, ErrorKind::kData, limits);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty()) {
    throw Error(ErrorKind::kData, "'" + path + "' has no 'weight_map' that names shards");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_shard_name(file.get_ref<const std::string&>(), suffix)) {
      throw Error(ErrorKind::kData,
                  "'" + path + "' names " + file.dump(-1, ' ', true) +
                      " where the plain name of a " + std::string(suffix) +
                      " file next to it is expected; fetch it again from where it "
                      "came");
    }
    shards.emplace(tensor, file.get<std::string>());
  }
  return shards;
}

namespace {

WeightFiles find_own_files(FileSystem& files, const std::string& folder) {
  std::string looked_for;
  for (const Layout& layout : kLayouts) {
    const std::string path = join_path(folder, layout.file);
    if (files.exists(path)) {
      check_is_file(files, path);
      return {.paths = {path}};
    }
    if (files.exists(join_path(folder, layout.index))) return read_index(files, folder, layout);
    looked_for += std::string(looked_for.empty() ? "" : ", ") + layout.file + ", " + layout.index;
  }
  if (const std::string path = join_path(folder, kAdapterFile); files.exists(path)) {
    check_is_file(files, path);
    return {.is_adapter = true, .paths = {path}};
  }
  for (const Foreign& foreign : kForeign) {
    if (files.exists(join_path(folder, foreign.file))) {
      throw Error(ErrorKind::kData, "'" + join_path(folder, foreign.file) + "' is " + foreign.what +
                                        ", which finetune does not read; " + foreign.advice);
    }
  }
  throw Error(ErrorKind::kData, "'" + folder + "' holds no weights (none of " + looked_for +
                                    " is there); name a folder as save_pretrained() writes it");
}

// The folders that modules.json lists for modules with weights.
std::vector<std::string> dense_modules(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kModulesFile);
  std::vector<std::string> names;
  if (!files.exists(path)) return names;
  const nlohmann::ordered_json modules =
      parse_json(files.read_all(path, kMaxModulesBytes), path, ErrorKind::kData);
  for (const auto& module : modules) {
    const auto text_of = [&](const char* name) {
      const auto found = module.is_object() ? module.find(name) : module.end();
      return found != module.end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::string name = text_of("path");
    if (is_module_folder_name(name) && text_of("type").ends_with(".Dense")) names.push_back(name);
  }
  return names;
}

}  // namespace

WeightFiles find_weight_files(FileSystem& files, const std::string& folder) {
  WeightFiles weights = find_own_files(files, folder);
  for (const std::string& name : dense_modules(files, folder)) {
    const WeightFiles own = find_own_files(files, join_path(folder, name));
    weights.paths.insert(weights.paths.end(), own.paths.begin(), own.paths.end());
  }
  return weights;
}

void check_weight_files(FileSystem& files, const WeightFiles& weights, bool verify) {
  for (const std::string& path : weights.paths) {
    if (is_pickled(path)) {
      check_torch_file(*files.open(path), path, verify);
    } else {
      (void)read_safetensors_header(*files.open(path), path);
    }
  }
}

}  // namespace finetune
