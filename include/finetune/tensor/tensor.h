// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace finetune {

using at::Tensor;

struct NamedTensor {
  std::string name;  // as in the checkpoint: "roberta.embeddings.word_embeddings.weight"
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

}  // namespace finetune
