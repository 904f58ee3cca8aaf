// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

// Which files of a model folder hold its weights, without torch.
namespace finetune {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kModelIndexFile[] = "model.safetensors.index.json";
inline constexpr char kPickledModelFile[] = "pytorch_model.bin";
inline constexpr char kPickledModelIndexFile[] = "pytorch_model.bin.index.json";

struct WeightFiles {
  enum class Format { kSafetensors, kTorch };  // of model.safetensors, of pytorch_model.bin

  Format format = Format::kSafetensors;
  std::vector<std::string> paths;             // sorted, each a file that is there
  std::string index;                          // path; empty where one file holds everything
  std::map<std::string, std::string> owners;  // what the index says: tensor -> one of `paths`
};

// In transformers' order: one safetensors file, safetensors shards, one pickled file, pickled
// shards. An index names plain files in its folder: a shard may be a link, but not one that leaves
// the folder, unless it points into the same model in Hugging Face's cache
// (models--NAME/snapshots/REVISION/file -> models--NAME/blobs/HASH). Throws Error(kData) that names
// the missing files, or files in an unsupported format.
[[nodiscard]] WeightFiles find_weight_files(FileSystem& files, const std::string& folder);

// Which file holds which tensor, by the text of an index. File names are checked to be plain names
// that end in `suffix`, never paths. Throws Error(kData).
[[nodiscard]] std::map<std::string, std::string> parse_shard_index(
    std::string_view text, const std::string& path, std::string_view suffix = ".safetensors");

// Checks every file as far as it can be without reading all tensors; with `verify` the checksums,
// where the format has them (zip archives of torch.save), too. Throws Error(kData).
void check_weight_files(FileSystem& files, const WeightFiles& weights, bool verify);

}  // namespace finetune
