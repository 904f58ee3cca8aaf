// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/nn/elementwise.h"
#include "finetune/nn/linear.h"

namespace finetune::nn {

// f(W x + b), [..., C] -> [..., F]. Fused; the result can be recomputed from the
// product.
class DenseActivation {
 public:
  // f is nullptr for the exact GELU.
  DenseActivation(const Scope& scope, int64_t inputs, int64_t outputs, Activation f);
  Value operator()(const Value& x, Pass& p) const;

 private:
  Linear dense_;
  Activation activation_;
};

// f(gate) * up. Keeps both inputs and recomputes the product when it is needed.
[[nodiscard]] Value gated(Value gate, Value up, Activation f, Pass& p);

// How many standard deviations above the mean of a normal distribution this share of it ends.
[[nodiscard]] double deviations_below(double share);
// max(x - mean - m deviation, 0) of each row with m = `deviations`: of normal values the share
// above m stays (Gemma 3n's statistical top-k).
[[nodiscard]] Value gaussian_top_k(Value x, double deviations, Pass& p);

struct GatedOptions {
  int64_t size = 0, intermediate = 0;
  Activation activation = nullptr;
  bool has_bias = false;
  bool has_down_bias = false;  // of the last product alone
  bool is_fused = false;       // gate and up are stored as one matrix, named gate_up
  const char* gate_up = "gate_up_proj";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  DropoutPoint dropout = {};  // of the product
  double sparsity = 0.0;      // the share of the gate that gaussian_top_k() leaves out; 0: none
};

// down(Dropout(f(gate(x)) * up(x))): "gate_proj", "up_proj", "down_proj" (Shazeer 2020).
class GatedFeedForward {
 public:
  GatedFeedForward(const Scope& scope, const GatedOptions& options);
  Value operator()(Value x, Pass& p) const;

 private:
  std::optional<Linear> gate_, up_, gate_up_;
  std::optional<Linear> down_;
  Activation activation_;
  DropoutPoint dropout_;
  std::optional<double> deviations_;  // of gaussian_top_k()
};

// An activation with two parameters, "alpha_p" and "alpha_n" (kernels::Xielu). Files have its
// constants "beta" and "eps", too.
class Xielu {
 public:
  explicit Xielu(const Scope& scope);
  // Keeps its input, and can be computed again from it.
  Value operator()(Value x, Pass& p) const;

 private:
  Weight alpha_p_, alpha_n_, beta_, eps_;
};

struct FeedForwardOptions {
  int64_t size = 0, intermediate = 0;
  Activation activation = nullptr;
  bool has_xielu = false;  // instead: "act_fn"
  bool has_bias = false;
  const char* up = "up_proj";
  const char* down = "down_proj";
};

// down(f(up(x))).
class FeedForward {
 public:
  FeedForward(const Scope& scope, const FeedForwardOptions& options);
  Value operator()(Value x, Pass& p) const;

 private:
  std::optional<DenseActivation> fused_;  // with biases
  std::optional<Linear> up_;
  std::optional<Linear> down_;
  std::optional<Xielu> xielu_;
  Activation activation_;
};

}  // namespace finetune::nn
