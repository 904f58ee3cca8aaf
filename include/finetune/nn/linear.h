// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune::nn {

// y = x W^T + b, for x [..., in]. Keeps x; its memory is reused for dx if nothing else refers to
// it.
[[nodiscard]] Value linear(Value x, const Weight& weight, const Weight& bias, Pass& p);

class Linear {
 public:
  Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias = true);

  Value operator()(Value x, Pass& p) const { return linear(std::move(x), weight_, bias_, p); }
  // The same for a further call in a pass that has already called operator(). The backward function
  // of operator() runs last and completes the parameters' gradients.
  [[nodiscard]] Value again(Value x, Pass& p) const;
  // x W^T without the bias, for parts that fuse the bias with the next operation.
  [[nodiscard]] Value product(Value x, Pass& p) const {
    return linear(std::move(x), weight_, Weight(), p);
  }
  [[nodiscard]] const Weight& weight() const { return weight_; }  // [out, in]
  [[nodiscard]] const Weight& bias() const { return bias_; }      // [out], or undefined

 private:
  Weight weight_, bias_;
};

// The same with the weight in GPT-2's layout, [in, out] (transformers' Conv1D).
class TransposedLinear {
 public:
  TransposedLinear(const Scope& scope, int64_t inputs, int64_t outputs);
  Value operator()(Value x, Pass& p) const;

 private:
  Weight weight_, bias_;
};

}  // namespace finetune::nn
