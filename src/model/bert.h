// SPDX-License-Identifier: MIT
#pragma once

#include "model/encoder.h"

namespace finetune {

// pooled = tanh(W first token + b): BERT's, and RoBERTa's for multiple choice.
class BertPoolerImpl final : public PoolerImpl {
 public:
  explicit BertPoolerImpl(const ModelConfig& config);
  Tensor forward(const Tensor& hidden, const ForwardContext& context) override;

 private:
  Linear dense_;
};

}  // namespace finetune
