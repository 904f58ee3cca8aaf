// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/task/predictor.h"

namespace finetune {

// Finds the texts of a corpus that are nearest to PredictOptions::queries, by the cosine of their
// vectors, as sentence-transformers' semantic_search. Keeps the best alone, so that the corpus may
// be larger than the memory.
class NearestTexts {
 public:
  virtual ~NearestTexts() = default;
  virtual void add(const std::vector<Query>& documents) = 0;
  // Returns {query, nearest: [{corpus_id, score, text}]} for each query, the nearest first;
  // corpus_id counts the documents from 0.
  [[nodiscard]] virtual std::vector<nlohmann::ordered_json> results() = 0;
};

// Throws Error(kConfig | kData) if the folder has no usable model of embeddings.
[[nodiscard]] std::unique_ptr<NearestTexts> make_nearest_texts(const std::string& folder,
                                                               const PredictOptions& options);

}  // namespace finetune
