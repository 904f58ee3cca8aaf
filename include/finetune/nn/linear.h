// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

// y = x W^T + b, for x [..., in]. Keeps x, whose memory becomes dx where nobody else keeps it.
[[nodiscard]] Value linear(Value x, const Tensor& weight, const Tensor& bias, Pass& p);

class Linear {
 public:
  Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias = true);

  Value operator()(Value x, Pass& p) const { return linear(std::move(x), weight_, bias_, p); }
  // The same in a pass that has called operator() already, whose backward function runs last: the
  // parameters' gradients are complete with that one.
  [[nodiscard]] Value again(Value x, Pass& p) const;
  // x W^T, for parts that add the bias together with what follows.
  [[nodiscard]] Value product(Value x, Pass& p) const {
    return linear(std::move(x), weight_, Tensor(), p);
  }
  [[nodiscard]] const Tensor& weight() const { return weight_; }  // [out, in]
  [[nodiscard]] const Tensor& bias() const { return bias_; }      // [out], or undefined

 private:
  Tensor weight_, bias_;
};

// The same with the weight as GPT-2's checkpoints have it, [in, out] (transformers' Conv1D).
class TransposedLinear {
 public:
  TransposedLinear(const Scope& scope, int64_t inputs, int64_t outputs);
  Value operator()(Value x, Pass& p) const;

 private:
  Tensor weight_, bias_;
};

}  // namespace finetune::nn
