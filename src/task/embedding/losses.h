// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Arguments of a loss, with the defaults of sentence-transformers 6.2.
struct EmbeddingLossArgs {
  double scale = 20.0;
  // Of MultipleNegativesRankingLoss: what is compared besides queries with documents
  // (query_to_query, doc_to_query, doc_to_doc), in one softmax or in one for each.
  std::vector<std::string> directions = {};
  bool per_direction = false;
  std::string hardness_mode = {};  // in_batch_negatives, hard_negatives, all_negatives; empty: none
  double hardness_strength = 0.0;
  double margin = 0.5;
  double triplet_margin = 5.0;
  std::string distance_metric = "euclidean";  // of TripletLoss: or "cosine", "manhattan"
  // Of GISTEmbedLoss.
  std::string guide = {};  // a folder
  double temperature = 0.01;
  std::string margin_strategy = "absolute";  // or "relative"
  double guide_margin = 0.0;
  bool contrast_anchors = true;
  bool contrast_positives = true;
};

// One of sentence-transformers' losses. All are means over samples [S], made of the vectors of
// their texts [S, K, D].
struct EmbeddingLoss {
  std::string_view name;  // without "Cached"
  bool couples;           // a sample's loss depends on other samples
  // The loss of each of a few samples can be computed by itself, from the vectors of all.
  bool by_sample;
  // What it reads of a sample: nothing, the label of its row, or the vectors of a guide.
  enum class Label { kNone, kScore, kBinary, kMargin, kGuide } label;
  int64_t fewest_texts;
  std::optional<int64_t> most_texts;
  std::vector<std::string_view> arguments;
  // The losses of samples [first, first + count): [count]. `labels` [S], or vectors of a guide
  // [S, K, G]; undefined if it has none.
  Tensor (*losses)(const Tensor& vectors, const Tensor& labels, int64_t first, int64_t count,
                   const EmbeddingLossArgs& args);
};

// torch.nn.functional.normalize: rows of length 1.
[[nodiscard]] Tensor unit(const Tensor& x);

// Whether the rows have a label for the loss.
[[nodiscard]] inline bool reads_label(const EmbeddingLoss& loss) {
  return loss.label != EmbeddingLoss::Label::kNone && loss.label != EmbeddingLoss::Label::kGuide;
}

// Returns the loss of this value of `loss_type`; nullptr for any other.
[[nodiscard]] const EmbeddingLoss* find_embedding_loss(std::string_view loss_type);
[[nodiscard]] const EmbeddingLoss& embedding_loss(std::string_view loss_type);
[[nodiscard]] std::vector<std::string> embedding_loss_names();

// Reads loss_kwargs (an object, or empty). Throws Error(kConfig) without the key's location.
[[nodiscard]] EmbeddingLossArgs parse_loss_args(const EmbeddingLoss& loss, const std::string& text);

// The sum of the loss over the first d dimensions, scaled to length 1, for each d of `dims`; of all
// dimensions as they are where it is empty. As MatryoshkaLoss.
[[nodiscard]] Tensor matryoshka(const EmbeddingLoss& loss, const std::vector<int64_t>& dims,
                                const Tensor& vectors, const Tensor& labels, int64_t first,
                                int64_t count, const EmbeddingLossArgs& args);

}  // namespace finetune
