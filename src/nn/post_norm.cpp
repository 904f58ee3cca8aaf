// SPDX-License-Identifier: MIT
#include "finetune/nn/post_norm.h"

namespace finetune::nn {
namespace {

ResidualOptions residual(const PostNormOptions& o, double dropout, DropoutSite site) {
  return {.epsilon = o.epsilon, .dropout = dropout, .layer = o.layer, .site = site};
}

}  // namespace

PostNormScopes bert_scopes(const Scope& layer) {
  const Scope attention = layer / "attention" / "output";
  const Scope output = layer / "output";
  return {attention / "dense", attention / "LayerNorm", layer / "intermediate" / "dense",
          output / "dense", output / "LayerNorm"};
}

PostNorm::PostNorm(const PostNormScopes& scopes, const PostNormOptions& o)
    : layer_(o.layer),
      attention_output_(scopes.attention_output, scopes.attention_norm, o.size, o.size,
                        residual(o, o.attention_output_dropout, DropoutSite::kAttentionOutput)),
      intermediate_(scopes.intermediate, o.size, o.intermediate, o.activation),
      output_(scopes.output, scopes.output_norm, o.intermediate, o.size,
              residual(o, o.dropout, DropoutSite::kFeedForwardOutput)) {}

}  // namespace finetune::nn
