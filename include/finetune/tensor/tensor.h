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
  kAdapter,        // a factor of an adapter's low-rank update
};

struct NamedTensor {
  std::string name;  // as in the checkpoint: "roberta.embeddings.word_embeddings.weight"
  Tensor tensor;
  ParameterRole role = ParameterRole::kOther;
};
using NamedTensors = std::vector<NamedTensor>;

}  // namespace finetune
