// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

// A lookup table: y = W[ids], with an adapter y = W[ids] + s A^T[ids] B^T (LoraTerm).
class Embedding {
 public:
  Embedding(const Scope& scope, int64_t rows, int64_t columns,
            ParameterRole role = ParameterRole::kEmbedding);
  // ids [...] int64 -> [..., C]. The row `padding_id` gets no gradient; -1: all rows get one. Keeps
  // the ids.
  Value operator()(const Tensor& ids, Pass& p, int64_t padding_id = -1) const;

  [[nodiscard]] const Weight& weight() const { return weight_; }  // [rows, C]

 private:
  Weight weight_;
  std::optional<LoraTerm> lora_;
};

}  // namespace finetune::nn
