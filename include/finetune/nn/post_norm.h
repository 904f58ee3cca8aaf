// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"

namespace finetune::nn {

struct PostNormOptions {
  int64_t size = 0, intermediate = 0;
  Activation activation = nullptr;  // nullptr: the exact GELU
  double epsilon = 1e-12;
  double dropout = 0.0;
  double attention_output_dropout = 0.0;
  int64_t layer = 0;  // selects the dropout's random numbers
};

// The names of its parameters in a checkpoint.
struct PostNormScopes {
  Scope attention_output, attention_norm, intermediate, output, output_norm;
};
// BERT's: "attention.output", "intermediate" and "output" with "dense" and "LayerNorm".
[[nodiscard]] PostNormScopes bert_scopes(const Scope& layer);

// A post-norm layer after its attention a: h = LN(x + Dropout(W a + b)), y = LN(h + Dropout(W2 f(W1
// h + b1) + b2)).
class PostNorm {
 public:
  PostNorm(const PostNormScopes& scopes, const PostNormOptions& options);
  // `attended`: as attend() returns it.
  Value operator()(Value attended, const Value& x, Pass& p) const {
    const Value h = attention_output_(std::move(attended), read_tokens(x, layer_, p), p);
    return output_(intermediate_(h, p), h, p);
  }

 private:
  int64_t layer_;
  AddAndNorm attention_output_;
  DenseActivation intermediate_;
  AddAndNorm output_;
};

}  // namespace finetune::nn
