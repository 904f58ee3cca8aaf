// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>

#include "finetune/nn/attention.h"
#include "finetune/nn/embedding.h"
#include "finetune/nn/norm.h"

// Disentangled attention: scores have terms for the distance between two tokens (He et al. 2021,
// "DeBERTa", and its version 3, which puts distances into buckets).
namespace finetune::nn {

// Maps the distance between a query and a key to a row of the relative position table [P, C]. Rows
// ascend with the distance, unless there is only a bias.
struct Distances {
  int64_t longest = 0;  // T: distances are -(T - 1) to T - 1
  Tensor row;           // [2T - 1] int64: row of each distance, ascending from -(T - 1)
  Tensor count;         // [P] int64: number of distances that map to each row
};

struct DistanceOptions {
  int64_t span = 0;          // P / 2; larger distances share the last row
  bool has_buckets = false;  // distances from span / 2 on share rows by logarithm
  int64_t longest = 0;       // with buckets: the largest distance, which maps to the last row
};
// Makes the map for sequences of at most `tokens`, on `device`.
[[nodiscard]] Distances make_distances(const DistanceOptions& options, int64_t tokens,
                                       c10::Device device);
// Whether the operators of a pass are recorded, for sequences of any length (an export). Its map is
// then a part of one table, that of `rows_of` (on the CPU) for as many tokens as there may be.
[[nodiscard]] inline bool is_recorded(const Pass& p, c10::Device device) {
  return p.is_plain() && device.is_meta();
}
[[nodiscard]] Distances recorded_distances(const std::function<Tensor(int64_t tokens)>& rows_of,
                                           int64_t tokens, c10::Device device);

struct DisentangledOptions {
  int64_t heads = 1;
  int64_t layer = 0;  // selects the dropout's random numbers
  double dropout = 0.0;
  double scale = 1.0;  // s
  // Padding queries attend to all tokens equally; otherwise to the tokens that are no padding.
  bool hides_padding_queries = true;
};

// Projections of the relative position table, [P, heads * D]: `key` is combined with the tokens'
// queries ("c2p"), `query` with the tokens' keys ("p2c"). Without a tensor the model has no such
// term.
struct DistanceProjections {
  Value key, query;
  // [P, heads] float32: added to the scores after their scale (Raffel et al. 2020, "T5").
  Value bias = {};
};

// Dropout(softmax(s (q k + q key[i - j] + k query[i - j]) + bias[i - j])) v per head, shaped like
// query. Computed
// in float32, one sequence and head at a time; the backward pass recomputes the probabilities.
// The memory of the projections is reused for their gradients.
[[nodiscard]] Value attend(Projections projections, DistanceProjections distances,
                           const Distances& rows, const DisentangledOptions& options, Pass& p);

// What all layers of a model read in one pass.
struct DistanceRows {
  Value rows;  // [P, C] in the pass's precision; undefined: attention without relative positions
  Distances distances;
};

// The relative position table: "rel_embeddings", and with an epsilon also "LayerNorm".
class DistanceTable {
 public:
  // Without options there is no table, but the norm's parameters exist, as in transformers.
  DistanceTable(const Scope& scope, int64_t size, const std::optional<DistanceOptions>& options,
                std::optional<double> epsilon);
  // For sequences of at most `tokens`.
  DistanceRows operator()(int64_t tokens, c10::Device device, Pass& p) const;

 private:
  std::optional<DistanceOptions> options_;
  std::optional<Embedding> rows_;
  std::optional<LayerNorm> norm_;
};

struct DistanceTerms {
  bool has_keys = false, has_queries = false;  // the terms "c2p" and "p2c"
  bool is_shared = false;                      // the table is projected as the tokens are
  double dropout = 0.0;  // of the table; all sequences of an update share the mask
};

// attend() with its projections: "query_proj", "key_proj", "value_proj", and unless they are shared
// "pos_key_proj" and "pos_query_proj".
class DisentangledAttention {
 public:
  DisentangledAttention(const Scope& scope, int64_t size, const DisentangledOptions& options,
                        const DistanceTerms& terms);
  Value operator()(const Value& x, const DistanceRows& table, Pass& p) const;

 private:
  [[nodiscard]] DistanceProjections project(const Value& table, Pass& p) const;

  DisentangledOptions options_;
  DistanceTerms terms_;
  Linear query_, key_, value_;
  std::optional<Linear> distance_key_, distance_query_;
};

}  // namespace finetune::nn
