// SPDX-License-Identifier: MIT
#pragma once

#include "model/attention.h"

namespace finetune {

// GELU(W x), or another activation that the configuration names.
class IntermediateImpl : public nn::Module {
 public:
  explicit IntermediateImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x);  // [B, T, C] -> [B, T, 4C]

 private:
  std::string activation_;
  nn::Linear dense_;
};
TORCH_MODULE(Intermediate);

// RoBERTa's encoder layer: h = LN(x + Attention(x)); y = LN(h + MLP(h)).
// Submodule names are the checkpoint's parameter names; renaming one breaks loading.
class EncoderLayerImpl : public nn::Module {
 public:
  EncoderLayerImpl(const ModelConfig& config, int64_t layer);

  Tensor forward(const Tensor& x, const ForwardContext& context) {
    const Tensor h = attention_(x, context);
    return output_(intermediate_(h), h, context);
  }

 private:
  Attention attention_;
  Intermediate intermediate_;
  AddAndNorm output_;
};
TORCH_MODULE(EncoderLayer);

class EncoderImpl : public nn::Module {
 public:
  explicit EncoderImpl(const ModelConfig& config);
  Tensor forward(Tensor x, const ForwardContext& context);  // [B, T, C] -> [B, T, C]

 private:
  std::vector<EncoderLayer> layers_;
};
TORCH_MODULE(Encoder);

// Applies the activation that transformers calls `name` ("gelu", "gelu_new", "relu", ...).
[[nodiscard]] Tensor activate(const Tensor& x, const std::string& name);

}  // namespace finetune
