// SPDX-License-Identifier: MIT
#include "finetune/nn/post_norm.h"

namespace finetune::nn {
namespace {

ResidualOptions residual(const PostNormOptions& o, DropoutSite site) {
  return {.epsilon = o.epsilon, .dropout = o.dropout, .layer = o.layer, .site = site};
}

}  // namespace

PostNorm::PostNorm(const Scope& scope, const PostNormOptions& o)
    : attention_output_(scope / "attention" / "output", o.size, o.size,
                        residual(o, DropoutSite::kAttentionOutput)),
      intermediate_(scope / "intermediate", o.size, o.intermediate, o.activation),
      output_(scope / "output", o.intermediate, o.size,
              residual(o, DropoutSite::kFeedForwardOutput)) {}

}  // namespace finetune::nn
