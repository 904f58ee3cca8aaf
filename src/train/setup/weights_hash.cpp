// SPDX-License-Identifier: MIT
#include "train/setup/weights_hash.h"

#include <algorithm>

#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/data/file_record.h"
#include "finetune/data/long_step.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {

TokenCacheOptions hash_cache(const TrainingArgs& args, const ShowStep& show) {
  TokenCacheOptions cache;
  cache.folder = join_path(args.cache_dir, "tokens");
  cache.show = show;
  return cache;
}

std::vector<std::string> weight_paths(const std::string& folder) {
  return find_weight_files(FileSystem::local(), folder).paths;
}

std::string hash_of_weights(const std::string& folder, const TokenCacheOptions& cache) {
  return remembered_hash(cache, "tensors", weight_paths(folder), [&] {
    const ModelTensors weights = load_model_tensors(FileSystem::local(), folder);
    std::vector<TensorInfo> tensors = weights.tensors();
    std::ranges::sort(tensors, {}, &TensorInfo::name);
    LongStep step({.phase = "hash", .doing = "hashing the weights of " + folder, .unit = "tensor"},
                  std::ssize(tensors), cache.show);
    Hasher hasher;
    for (const TensorInfo& tensor : tensors) {
      std::string line = tensor.name + " " + dtype_name(tensor.dtype);
      for (const int64_t size : tensor.shape) line += " " + std::to_string(size);
      hasher.update(line + "\n");
      const Tensor values = weights.read(tensor.name).contiguous();
      if (values.nbytes() > 0) hasher.update(values.const_data_ptr(), values.nbytes());
      step.advance();
    }
    return hasher.hex();
  });
}

}  // namespace finetune
