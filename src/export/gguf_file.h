// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "export/ggml_type.h"
#include "finetune/base/file_system.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// The metadata of a GGUF file, in the order in which they are added.
class GgufMetadata {
 public:
  using Value = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                             std::vector<float>, std::vector<int32_t>, std::vector<bool>>;

  // Replaces a value of the same name in its place.
  void set(const std::string& name, Value value);
  [[nodiscard]] const std::vector<std::pair<std::string, Value>>& all() const { return values_; }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // as torch has it; the file has it reversed
  GgmlType type = GgmlType::kF32;
  // Returns rows [first, first + count) of the first dimension in float32.
  std::function<Tensor(int64_t first, int64_t count)> rows;
  std::string source = {};              // its name in transformers
  std::vector<std::string> parts = {};  // instead: names of the tensors that this one stacks
  // Returns the values as transformers has them, of those in the file; null: it has no such tensor.
  std::function<Tensor(const Tensor& values)> restored = {};
  // Instead: the shape of `source`, and the view of it that these values are. Several tensors may
  // be views of one.
  std::vector<int64_t> whole = {};
  std::function<Tensor(const Tensor& whole)> view = {};

  [[nodiscard]] uint64_t bytes() const;
};

// Bytes of the file.
[[nodiscard]] uint64_t gguf_bytes(const GgufMetadata& metadata,
                                  const std::vector<GgufTensor>& tensors);

// Where each tensor's bytes begin in the file.
[[nodiscard]] std::vector<uint64_t> gguf_offsets(const GgufMetadata& metadata,
                                                 const std::vector<GgufTensor>& tensors);
// Returns the values of a tensor of a file that write_gguf() wrote, in float32.
[[nodiscard]] Tensor read_gguf_tensor(const ReadableFile& file, const GgufTensor& tensor,
                                      uint64_t offset);

// Writes version 3 with an alignment of 32 bytes, some MiB at a time; neither syncs nor closes.
// Throws Error(kData) for NaN or Inf, and for names that are longer than ggml allows.
void write_gguf(WritableFile& file, const GgufMetadata& metadata,
                const std::vector<GgufTensor>& tensors);

}  // namespace finetune
