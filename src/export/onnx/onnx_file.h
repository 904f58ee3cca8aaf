// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/tensor/lazy_tensor.h"

// Files of ONNX (onnx.proto, IR version 8): messages of protobuf, whose fields are written and read
// here without a library, since the values of weights are never in memory as a whole.
namespace finetune {

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::vector<int64_t>> value;
};

struct OnnxNode {
  std::string op;
  std::vector<std::string> inputs, outputs;  // an empty name: an input that is left out
  std::vector<OnnxAttribute> attributes = {};
};

// An input or output of the graph; a dimension is a size, or the name of one that may vary.
struct OnnxPort {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::variant<int64_t, std::string>> shape;
};

struct OnnxModel {
  std::vector<OnnxNode> nodes;  // each after those whose outputs it reads
  LazyTensors initializers;     // float32, float16, int64, int32, int8, uint8 or bool
  std::vector<OnnxPort> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// The number of a type in onnx.proto. Throws Error(kData) for one that is not above.
[[nodiscard]] int64_t onnx_type(at::ScalarType type);

// How the name of an initializer ends whose rows are its weight's columns.
inline constexpr char kTransposedEnd[] = ".transposed";

inline constexpr int64_t kOnnxOpset = 17;
// A message of protobuf is below 2 GiB: weights of larger models are in a second file.
inline constexpr uint64_t kMostOnnxBytes = (uint64_t{1} << 31) - (uint64_t{16} << 20);

// Where the values of an initializer are: in the second file at `offset`.
struct ExternalData {
  std::string file_name;
  std::vector<std::optional<uint64_t>> offsets;  // as OnnxModel::initializers; nullopt: in the file
  uint64_t bytes = 0;                            // of the second file
};
// Puts all large initializers into a file of this name.
[[nodiscard]] ExternalData plan_external_data(const OnnxModel& model, const std::string& file_name);

[[nodiscard]] uint64_t onnx_bytes(const OnnxModel& model, const ExternalData& external);
// Neither syncs nor closes. Throws Error(kData) for NaN or Inf in a weight.
void write_onnx(WritableFile& file, const OnnxModel& model, const ExternalData& external);
void write_external_data(WritableFile& file, const OnnxModel& model, const ExternalData& external);

// An initializer of a file.
struct OnnxEntry {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  std::string location = {};  // another file, of the same folder; empty: this one
  uint64_t offset = 0, bytes = 0;
};
// Reads the initializers of a file that write_onnx() wrote. Throws Error(kData) for one that is
// damaged: whatever the bytes are, nothing outside the file is read.
[[nodiscard]] std::vector<OnnxEntry> read_onnx(const ReadableFile& file, const std::string& where);

}  // namespace finetune
