// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/nn/feed_forward.h"
#include "finetune/nn/stacked_linear.h"

namespace finetune::nn {

struct ExpertsOptions {
  int64_t size = 0, intermediate = 0;  // of one expert
  int64_t experts = 0;                 // E, or 0
  int64_t per_token = 0;               // k
  Activation activation = nullptr;
  bool router_comes_last = false;  // in the order of transformers' parameters
  bool normalizes = false;         // the shares of a token's experts sum to 1
  const char* router = "gate";
  bool router_has_bias = false;
  // Names of the experts' matrices, those of gate and up as one, each of them stacked in one
  // parameter; without them each expert has layers "experts.0.gate_proj", ...
  struct Stack {
    const char* gate_up = nullptr;
    const char* down = nullptr;
    bool is_transposed = false;  // [E, in, out]
    bool has_bias = false;       // in the same way
    bool alternates = false;     // rows of gate and up, instead of first all of gate
  };
  std::optional<Stack> stack = {};
  // The gate is at most this and up between this and its negative, and the product is with up + 1
  // (OpenAI 2025, gpt-oss); 0: none of it.
  double limit = 0.0;
};

// The parameter of transformers' module that stacks experts' matrices, by the name in files of the
// weight that is all of it, or one expert's part of it.
struct StackedParameter {
  std::string name;                    // "model.layers.0.mlp.experts.gate_up_proj"
  bool is_transposed = false;          // [E, in, out]
  std::optional<int64_t> expert = {};  // whose part it is
  bool is_up = false;                  // the second half of an expert's gate_up_proj

  // The module that PEFT puts its adapter into; `is_inner`: that of experts' other stack is around
  // it.
  [[nodiscard]] std::string adapter(bool is_inner) const;
  [[nodiscard]] bool is_gate_up() const { return name.ends_with("gate_up_proj"); }
  // The other stack of the same experts.
  [[nodiscard]] std::string other() const;
};
[[nodiscard]] StackedParameter stacked_parameter(const std::string& weight);

// Which experts compute a token, and their shares of its result.
struct Routes {
  Value shares;    // [N, k] float32
  Tensor experts;  // [N, k] int64, by falling probability; of equal ones the lower number first
};

// A mixture of experts (Shazeer et al. 2017): of E gated feed-forward networks each token is
// computed by the k to which the router gives the highest probability, softmax(W x + b) in float32
// in every precision. The tokens of an expert are one product; an expert without tokens computes
// nothing, and its gradient is zero. Adapters are those of stacks, whether they are one or not.
class MixtureOfExperts {
 public:
  MixtureOfExperts(const Scope& scope, const ExpertsOptions& options);
  Value operator()(Value x, Pass& p) const;  // [..., C] -> [..., C]

 private:
  struct Expert {
    Linear gate, up, down;
  };
  struct Stacks {
    StackedLinear gate_up, down;
  };
  // Gate and up of an expert's tokens, [n, F] each.
  struct Halves {
    Value gate, up;
  };
  // Which expert, and what the calls of its stacks share.
  struct Turn {
    size_t number = 0;
    StackedAdapter::Calls of_gate_up = {}, of_down = {};
  };
  void make_router(const Scope& scope);
  void make_experts(const Scope& scope);
  void make_adapters(const Scope& scope);
  [[nodiscard]] Routes route(const Value& rows, Pass& p) const;
  [[nodiscard]] Halves halves(Turn& turn, const Value& x, Pass& p) const;
  [[nodiscard]] Value down(Turn& turn, Value x, Pass& p) const;
  [[nodiscard]] Value with_biases(Value sum, const Routes& routes, Pass& p) const;
  [[nodiscard]] std::vector<Weight> weights_of(size_t number) const;

  ExpertsOptions options_;
  Weight router_;       // [E, C]
  Weight router_bias_;  // [E], or undefined
  std::vector<Expert> experts_;
  std::optional<Stacks> stacks_;                        // instead
  std::optional<StackedAdapter> of_gate_up_, of_down_;  // of experts_
  Weight down_bias_;                                    // [E, C], or undefined
};

}  // namespace finetune::nn
