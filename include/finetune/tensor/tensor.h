// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace finetune {

using at::Tensor;

// What a model uses a parameter for, where other code depends on it. Set where the parameter is
// made, so that nothing needs to know its name.
enum class ParameterRole {
  kOther,
  kWordEmbedding,  // the rows of the vocabulary
  kEmbedding,      // another table whose rows are looked up: positions, token types, distances
  kLinear,         // the matrix of a linear layer other than a language model's output layer
  kStackedLinear,  // the same of several layers, [E, ...]
  kAdapter,        // a factor of an adapter's low-rank update
  kConstant,       // in files, and never trained: a buffer of transformers' module
};

// Neither looked up nor of an adapter, and no constant.
[[nodiscard]] constexpr bool is_ordinary(ParameterRole role) {
  return role == ParameterRole::kOther || role == ParameterRole::kLinear ||
         role == ParameterRole::kStackedLinear;
}

struct NamedTensor {
  std::string name;  // as in the checkpoint: "roberta.embeddings.word_embeddings.weight"
  Tensor tensor;
  ParameterRole role = ParameterRole::kOther;
};
using NamedTensors = std::vector<NamedTensor>;

}  // namespace finetune
