// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/linear.h"

namespace finetune::nn {

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension (Ba et al.
// 2016); the bias is optional. Keeps x.
class LayerNorm {
 public:
  LayerNorm(const Scope& scope, int64_t size, double epsilon, bool has_bias = true);
  Value operator()(const Value& x, Pass& p) const;

  [[nodiscard]] const Weight& weight() const { return weight_; }
  [[nodiscard]] const Weight& bias() const { return bias_; }
  [[nodiscard]] double epsilon() const { return epsilon_; }

 private:
  Weight weight_, bias_;  // [C]
  double epsilon_;
};

// y = x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich 2019), in
// the pass's precision. With adds_one the factor is 1 + weight.
class RmsNorm {
 public:
  explicit RmsNorm(double epsilon) : epsilon_(epsilon), adds_one_(false) {}  // without weights
  RmsNorm(const Scope& scope, int64_t size, double epsilon, bool adds_one = false);
  // That of a weight that is there already.
  RmsNorm(Weight weight, double epsilon)
      : weight_(std::move(weight)), epsilon_(epsilon), adds_one_(false) {}
  Value operator()(const Value& x, Pass& p) const;
  struct OfSum {
    Value sum, normed;
  };
  // Adds both and normalises the sum, in one kernel where the device has one. Keeps the sum.
  [[nodiscard]] OfSum of_sum(const Residual& all, Pass& p) const;

 private:
  [[nodiscard]] Tensor plainly(const Tensor& x, const Tensor& weight) const;
  [[nodiscard]] kernels::RmsNorm options(const Tensor& x, const Pass& p) const;
  // Records the norm y of x. If `rounded` is not null and x gets its whole gradient from here, the
  // backward function stores this gradient there, rounded to y's type.
  [[nodiscard]] Value record(Tensor y, const Value& x, const std::shared_ptr<Tensor>& rounded,
                             Pass& p) const;

  Weight weight_;  // [C]; undefined: ones
  double epsilon_;
  bool adds_one_;
};

struct ResidualOptions {
  double epsilon = 1e-12;
  double dropout = 0.0;
  int64_t layer = 0;  // selects the dropout's random numbers
  DropoutSite site = DropoutSite::kAttentionOutput;
};

// y = LN(residual + Dropout(W x + b)), the end of each half of a post-norm layer. Fused: the sum is
// stored in the product's memory, and y can be recomputed from it.
class AddAndNorm {
 public:
  // The scopes of W and b, and of the norm.
  AddAndNorm(const Scope& dense, const Scope& norm, int64_t inputs, int64_t size,
             const ResidualOptions& options);
  Value operator()(Value x, const Value& residual, Pass& p) const;

 private:
  Linear dense_;
  LayerNorm norm_;
  ResidualOptions options_;
};

}  // namespace finetune::nn
