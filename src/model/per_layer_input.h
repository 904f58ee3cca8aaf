// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/nn/embedding.h"
#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"

// What Gemma 3n and 4 give each layer besides hidden states: a vector of each token for that layer,
// from another table and from the word's embedding. Scopes are the names in the checkpoint.
namespace finetune {

struct PerLayerInputOptions {
  int64_t vocabulary = 0, layers = 0;
  int64_t hidden = 0;  // C
  int64_t size = 0;    // D, or 0
  double epsilon = 1e-6;
  Activation activation = nullptr;  // of the layers' gates
  int64_t padding_row = -1;         // of the table, gets no gradient; -1: all rows get one
};

// (RMSNorm(C^-1/2 W x) + D^1/2 E[ids]) / 2^1/2
class PerLayerInputs {
 public:
  PerLayerInputs(const nn::Scope& scope, const PerLayerInputOptions& options);
  // Of ids [B, T] and their embeddings x [B, T, C]: [B, T, D] for each layer. Ids beyond the table
  // have that of its first row.
  std::vector<nn::Value> operator()(const Tensor& ids, const nn::Value& x, nn::Pass& p) const;

 private:
  PerLayerInputOptions options_;
  nn::Embedding embedding_;
  nn::Linear projection_;
  nn::RmsNorm norm_;
};

// RMSNorm(W (f(G x) * input)), which a layer adds to x.
class PerLayerInput {
 public:
  PerLayerInput(const nn::Scope& scope, const PerLayerInputOptions& options);
  nn::Value operator()(nn::Value x, nn::Value input, nn::Pass& p) const;

 private:
  nn::Linear gate_, projection_;
  nn::RmsNorm norm_;
  Activation activation_;
};

}  // namespace finetune
