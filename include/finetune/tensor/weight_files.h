// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

// Finds the files of a model folder that contain its weights, without torch.
namespace finetune {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kModelIndexFile[] = "model.safetensors.index.json";
inline constexpr char kAdapterFile[] = "adapter_model.safetensors";
// Before each name in an adapter's file, where PEFT says which of its models it adapts.
inline constexpr char kAdapterPrefix[] = "base_model.model.";
inline constexpr char kPickledModelFile[] = "pytorch_model.bin";
inline constexpr char kPickledModelIndexFile[] = "pytorch_model.bin.index.json";

struct WeightFiles {
  bool is_adapter = false;              // the weights are those of an adapter, without its base
  std::vector<std::string> paths = {};  // the transformer's, sorted, and the modules'; all exist
  std::string index = {};               // path; empty if a single file contains all tensors
  std::map<std::string, std::string> owners = {};  // from the index: tensor -> one of `paths`
};

// Whether a file is of torch.save, as pytorch_model.bin is.
[[nodiscard]] inline bool is_pickled(std::string_view path) { return path.ends_with(".bin"); }

// Looks for, in transformers' order: one safetensors file, safetensors shards, one pickled file,
// pickled shards; then an adapter's safetensors file. An index names plain files in its folder: a
// shard may be a link, but must not leave the folder, unless it points into the same model in
// Hugging Face's cache (models--NAME/snapshots/REVISION/file -> models--NAME/blobs/HASH). The
// weights of the dense layers that modules.json lists, as "2_Dense", come last. Throws Error(kData)
// naming the missing files, or files in an unsupported format.
[[nodiscard]] WeightFiles find_weight_files(FileSystem& files, const std::string& folder);

// Returns the file of each tensor from the text of an index. File names must be plain names that
// end in `suffix`, not paths. Throws Error(kData).
[[nodiscard]] std::map<std::string, std::string> parse_shard_index(
    std::string_view text, const std::string& path, std::string_view suffix = ".safetensors");

// Checks every file as far as possible without reading all tensors; with `verify` also the
// checksums, if the format has them (zip archives of torch.save). Throws Error(kData).
void check_weight_files(FileSystem& files, const WeightFiles& weights, bool verify);

}  // namespace finetune
