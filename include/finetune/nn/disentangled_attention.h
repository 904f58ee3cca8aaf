// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/attention.h"

// Attention with terms of the distance between two tokens (He et al. 2021, "DeBERTa", and its
// version 3, which puts distances into buckets).
namespace finetune::nn {

// Which row of the table of distances, [P, C], the distance of a query from a key has.
struct Distances {
  int64_t longest = 0;  // T: distances are -(T - 1) to T - 1
  Tensor row;           // [2T - 1] int64, ascending: of -(T - 1) first
  Tensor count;         // [P] int64: how many distances have a row
};

struct DistanceOptions {
  int64_t span = 0;          // P / 2; distances beyond it share the last row
  bool has_buckets = false;  // distances from span / 2 on share rows, by their logarithm
  int64_t longest = 0;       // with buckets: the distance that the last row stands for
};
// Of sequences of at most `tokens`; on `device`.
[[nodiscard]] Distances make_distances(const DistanceOptions& options, int64_t tokens,
                                       c10::Device device);

struct DisentangledOptions {
  int64_t heads = 1;
  int64_t layer = 0;  // of the dropout's numbers
  double dropout = 0.0;
  double scale = 1.0;  // s
};

// The projected table of distances, [P, heads * D]: as keys of the tokens' queries ("c2p"), as
// queries of the tokens' keys ("p2c"). A value without a tensor: the model has no such term.
struct DistanceProjections {
  Value key, query;
};

// Dropout(softmax(s (q k + q key[i - j] + k query[i - j]))) v in heads -> like query.
// Computed in float32, a sequence and a head at a time; probabilities
// are computed again in the backward pass. Queries that are padding see every token alike, as in
// transformers. The projections' memory becomes their gradients.
[[nodiscard]] Value attend(Projections projections, DistanceProjections distances,
                           const Distances& rows, const DisentangledOptions& options, Pass& p);

// Dropout of the table of distances [P, C] in one layer: every sequence of an update has the same.
[[nodiscard]] Value drop_distances(Value table, double probability, int64_t layer, Pass& p);

}  // namespace finetune::nn
