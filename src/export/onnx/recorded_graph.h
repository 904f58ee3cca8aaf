// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/tensor/tensor.h"

// A computation as ATen's operators, for any batch size B and any number of tokens T. It is the
// model's own forward pass, run on the meta device for some pairs (B, T): an integer that differs
// between them is a function of B and T, and a pass that branches otherwise is refused.
namespace finetune {

// constant + batch B + tokens T + cells B T + squares T T
struct DynamicSize {
  int64_t constant = 0, batch = 0, tokens = 0, cells = 0, squares = 0;
  [[nodiscard]] bool is_constant() const {
    return batch == 0 && tokens == 0 && cells == 0 && squares == 0;
  }
  bool operator==(const DynamicSize&) const = default;
};
using DynamicShape = std::vector<DynamicSize>;

struct RecordedValue {
  at::ScalarType type = at::kFloat;
  DynamicShape shape;
  std::string parameter = {};  // its name, of a weight
  Tensor constant = {};        // on the CPU, of a value that is the same for all inputs
};

struct RecordedArgument {
  enum class Kind { kNone, kValue, kValues, kInteger, kIntegers, kNumber, kTruth, kText };
  Kind kind = Kind::kNone;
  std::vector<size_t> values = {};  // indices of RecordedGraph::values
  DynamicShape integers = {};
  double number = 0.0;
  bool truth = false;
  std::string text = {};
};

struct RecordedCall {
  std::string name;  // "aten::add.Tensor"
  std::vector<RecordedArgument> arguments;
  std::vector<size_t> results;
};

struct RecordedGraph {
  std::vector<RecordedValue> values;
  std::vector<RecordedCall> calls;  // in the order of the pass
  std::vector<size_t> inputs, outputs;
};

struct RecordedPass {
  NamedTensors parameters;  // on the meta device
  // Makes the inputs for [B, T], on the meta device.
  std::function<std::vector<Tensor>(int64_t batch, int64_t tokens)> inputs;
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> run;
  int64_t most_tokens = 0;
};

// Throws Error(kData) that says what of the pass depends on B or T in another way. One thread.
[[nodiscard]] RecordedGraph record_graph(const RecordedPass& pass);

}  // namespace finetune
