// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/elementwise.h"
#include "finetune/nn/linear.h"

namespace finetune::nn {

// f(W x + b), [..., C] -> [..., F]: "dense". Fused; the result can be rebuilt from the product.
class DenseActivation {
 public:
  // f null: the exact GELU.
  DenseActivation(const Scope& scope, int64_t inputs, int64_t outputs, Activation f);
  Value operator()(const Value& x, Pass& p) const;

 private:
  Linear dense_;
  Activation activation_;
};

// down(f(gate(x)) * up(x)): "gate_proj", "up_proj", "down_proj" without biases (Shazeer 2020).
class GatedFeedForward {
 public:
  GatedFeedForward(const Scope& scope, int64_t size, int64_t intermediate, Activation f);
  Value operator()(const Value& x, Pass& p) const;

 private:
  Linear gate_, up_, down_;
  Activation activation_;
};

}  // namespace finetune::nn
