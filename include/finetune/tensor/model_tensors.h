// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/tensor/safetensors_header.h"
#include "finetune/tensor/stored_names.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

class Mxfp4Weights;
class WeightFile;

// The tensors of a model folder, in one file or many, safetensors or pickled. Data is read on
// demand, one tensor (in pickled files: one storage) at a time. All errors are Error(kData) with
// file, tensor and reason. Thread-safe for reading.
class ModelTensors {
 public:
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] bool has(const std::string& name) const { return positions_.count(name) > 0; }
  // Returns the file that contains a tensor, for messages; the first file if none does.
  [[nodiscard]] const std::string& path_of(const std::string& name) const;
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;
  // Its name in the file, where that is another; of a part of a tensor that of the whole.
  [[nodiscard]] const std::string& stored_name(const std::string& name) const;
  [[nodiscard]] at::ScalarType type_of(const std::string& name) const;

  [[nodiscard]] Tensor read(const std::string& name) const;  // on the CPU, in the file's type
  // Rows [first, first + count) of its first dimension. Unless reads_rows(), which is so for
  // pickled files, the whole tensor is read.
  [[nodiscard]] Tensor read_rows(const std::string& name, int64_t first, int64_t count) const;
  [[nodiscard]] bool reads_rows(const std::string& name) const;
  // Overwrites the values of `target`, which keeps its device, layout and type. Floating types are
  // converted; other types and the shape must be equal.
  void read_into(const std::string& name, Tensor& target) const;

  // Stacks of matrices that the files have in MXFP4: read() gives what their codes mean, in
  // bfloat16. Blocks and scales, flat, are as in params/quantized_values.h.
  [[nodiscard]] bool is_mxfp4(const std::string& name) const;
  [[nodiscard]] std::pair<Tensor, Tensor> read_mxfp4(const std::string& name) const;

 private:
  friend ModelTensors load_model_tensors(FileSystem& files, const std::string& folder, bool maps,
                                         const StoredNames& names);

  struct Position {
    size_t file = 0;
    size_t tensor = 0;  // in tensors_
  };
  [[nodiscard]] const WeightFile& file_of(const std::string& name) const;
  void join_mxfp4();

  std::vector<std::shared_ptr<const WeightFile>> files_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Position> positions_;
  std::map<std::string, std::string> stored_names_;  // by other names
  std::shared_ptr<const Mxfp4Weights> mxfp4_;        // null without such stacks
};

// Opens what find_weight_files() finds and checks it against the index. A pickled file is a
// dictionary of tensors by name, or a dictionary that has one under "state_dict" or "model". The
// tensors of an adapter have the names of the model that it adapts, without kAdapterPrefix.
// `maps`: what read() returns may share its file's pages (MappedFile) and is not written to;
// requires local files that nobody changes. `names`: applied to each tensor's name, one after the
// other.
[[nodiscard]] ModelTensors load_model_tensors(FileSystem& files, const std::string& folder,
                                              bool maps = false, const StoredNames& names = {});

}  // namespace finetune
