// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/nn/feed_forward.h"

namespace finetune::nn {

struct ExpertsOptions {
  int64_t size = 0, intermediate = 0;  // of one expert
  int64_t experts = 0;                 // E, or 0
  int64_t per_token = 0;               // k
  Activation activation = nullptr;
  bool router_comes_last = false;  // in the order of transformers' parameters
  bool normalizes = false;         // the shares of a token's experts sum to 1
};

// Which experts compute a token, and their shares of its result.
struct Routes {
  Value shares;    // [N, k] float32
  Tensor experts;  // [N, k] int64, by falling probability; of equal ones the lower number first
};

// A mixture of experts (Shazeer et al. 2017): of E gated feed-forward networks "experts.0",
// "experts.1", ... each token is computed by the k to which the router "gate" gives the highest
// probability, softmax(W x) in float32 in every precision. The tokens of an expert are one product;
// an expert without tokens computes nothing, and its gradient is zero. Experts have no adapter.
class MixtureOfExperts {
 public:
  MixtureOfExperts(const Scope& scope, const ExpertsOptions& options);
  Value operator()(Value x, Pass& p) const;  // [..., C] -> [..., C]

 private:
  struct Expert {
    Linear gate, up, down;
  };
  [[nodiscard]] Routes route(const Value& rows, Pass& p) const;
  [[nodiscard]] Value computed(const Expert& expert, const Value& rows, const Value& shares,
                               const Tensor& positions, const Tensor& tokens, Pass& p) const;

  ExpertsOptions options_;
  Weight router_;  // [E, C]
  std::vector<Expert> experts_;
};

}  // namespace finetune::nn
