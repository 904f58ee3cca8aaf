// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "export/onnx/onnx_file.h"
#include "export/onnx/recorded_graph.h"
#include "finetune/export/merged_model.h"

namespace finetune {

enum class OnnxWeights {
  kFloat32,
  // Matrices in float16, which products of linear layers read and return; all else in float32.
  kFloat16,
  // Matrices of linear layers and of words in int8, symmetric, with a scale for each row; what a
  // product reads is quantised as onnxruntime's quantize_dynamic() does.
  kInt8,
};

// Returns the nodes and weights of a recorded pass, whose inputs and outputs have the names of
// `inputs` and `outputs`. The graph reads B and T from the first input, [B, T]. Throws Error(kData)
// for an operator without a form in ONNX.
struct OnnxNames {
  std::vector<std::string> inputs, outputs;
};
[[nodiscard]] OnnxModel onnx_graph(const RecordedGraph& graph, const OnnxNames& names,
                                   const MergedModel& weights, OnnxWeights type);

// The name of an initializer with the scales of a weight's rows, [N, 1] (`is_column`) or [N].
[[nodiscard]] std::string scales_name(const std::string& weight, bool is_column);

}  // namespace finetune
