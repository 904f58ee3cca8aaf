// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/tensor/safetensors_header.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// An opened and checked file of named tensors in any format. `info` must be one of tensors().
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  [[nodiscard]] virtual const std::string& path() const = 0;
  [[nodiscard]] virtual const std::vector<TensorInfo>& tensors() const = 0;
  [[nodiscard]] virtual Tensor read(const TensorInfo& info) const = 0;
  // Whether read_rows() reads these rows alone; else it reads the whole tensor.
  [[nodiscard]] virtual bool reads_rows() const { return false; }
  [[nodiscard]] virtual Tensor read_rows(const TensorInfo& info, int64_t first,
                                         int64_t count) const {
    return read(info).narrow(0, first, count);
  }
  // Throws if the tensor does not fit into `target`: see check_fits().
  virtual void read_into(const TensorInfo& info, Tensor& target) const = 0;
};

// `maps`: tensors that are read share the file's pages where that is possible; see MappedFile.
[[nodiscard]] std::shared_ptr<const WeightFile> open_safetensors_weights(FileSystem& files,
                                                                         const std::string& path,
                                                                         bool maps = false);
[[nodiscard]] std::shared_ptr<const WeightFile> open_torch_weights(FileSystem& files,
                                                                   const std::string& path);

// Throws "'x.bin' has no tensor 'y'; it belongs to another kind of model".
[[noreturn]] void reject_missing_tensor(const std::string& path, const std::string& name);
// Throws if a tensor of the file does not fit into `target`.
void check_fits(const std::string& path, const TensorInfo& info, const Tensor& target);

}  // namespace finetune
