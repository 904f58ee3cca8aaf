// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/lazy_tensor.h"
#include "finetune/tensor/safetensors_header.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

// Writes a complete safetensors file; neither syncs nor closes it. Tensors may be on any device and
// are copied to the host, and made contiguous, some MiB at a time. Tensors that share memory are
// written once per name, so callers leave tied ones out. Equal input gives equal bytes, identical
// to the reference implementation's. With Numbers::kFinite, NaN or Inf is Error(kData) with tensor
// and element. Requires: unique names, types that DType has.
void write_safetensors(WritableFile& file, const LazyTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       Numbers numbers = Numbers::kFinite);
void write_safetensors(WritableFile& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                       Numbers numbers = Numbers::kFinite);

// One file of a model, named as in Hugging Face: `model.safetensors`, or
// `model-00001-of-00003.safetensors`, ... with an index. Tensors of modules (module_folder()) come
// last, each module's in its folder: `2_Dense/model.safetensors`.
struct ModelShard {
  std::string file_name;
  LazyTensors tensors;
};
[[nodiscard]] std::vector<ModelShard> plan_shards(const LazyTensors& tensors,
                                                  uint64_t max_shard_bytes = kMaxShardBytes);
[[nodiscard]] std::vector<ModelShard> plan_shards(const NamedTensors& tensors,
                                                  uint64_t max_shard_bytes = kMaxShardBytes);
// Returns the text of kModelIndexFile; nullopt: kModelFile has all tensors.
[[nodiscard]] std::optional<std::string> make_shard_index(const std::vector<ModelShard>& shards);

// An opened and validated safetensors file. Tensor data is read on demand, never mapped. All errors
// are Error(kData) with file, tensor and reason. Safe to read from several threads.
class SafetensorsFile {
 public:
  static SafetensorsFile open(FileSystem& files, const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }
  [[nodiscard]] bool has(const std::string& name) const { return index_.count(name) > 0; }
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;

  [[nodiscard]] Tensor read(const std::string& name) const;  // on the CPU, in the file's type
  // Rows [first, first + count) of its first dimension. Requires: it has one, and these rows.
  [[nodiscard]] Tensor read_rows(const std::string& name, int64_t first, int64_t count) const;
  // Overwrites the values of `target`, which keeps its device, layout and type. Floating types are
  // converted; other types and the shape must be equal.
  void read_into(const std::string& name, Tensor& target) const;

 private:
  void read_bytes(const TensorInfo& info, void* data) const;

  std::string path_;
  std::shared_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> index_;
};

}  // namespace finetune
