// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/task/queries.h"

namespace finetune {

// Which documents are hard negatives of a query; names and meanings are those of
// sentence-transformers' mine_hard_negatives().
struct HardNegativeOptions {
  int64_t num_negatives = 3;
  int64_t range_min = 0;                  // the nearest that are left out
  std::optional<int64_t> range_max = {};  // the nearest that are looked at; unset: enough
  std::optional<double> max_score = {}, min_score = {};  // cosines
  std::optional<double> absolute_margin = {};            // below the positive's cosine
  std::optional<double> relative_margin = {};            // the same, as a share of it
  friend bool operator==(const HardNegativeOptions&, const HardNegativeOptions&) = default;
};

// Throws Error(kUsage) if the options leave too few candidates.
void check_hard_negatives(const HardNegativeOptions& options);

// A query and a document that answers it.
struct MiningPair {
  std::string query, positive;
  std::string where;  // prefix of messages
};

struct MinedRow {
  std::string query, positive;
  std::vector<std::string> negatives;  // num_negatives of them, the nearest first
};

struct Mining {
  std::vector<MinedRow> rows;
  int64_t without = 0;  // pairs whose query has too few negatives
};

struct MiningModel {
  std::string folder;
  std::string query_prompt = {}, document_prompt = {};
  int64_t batch_size = 32;
  bool use_cpu = false;
};

// Searches the positives of all pairs for the nearest ones of each query that are not its own, by
// the cosine of the model's vectors; exact. The rows follow the queries in their first order.
// `progress`: texts that have vectors, of `total`. Throws Error(kConfig | kData) and Interrupted.
[[nodiscard]] Mining mine_hard_negatives(
    const MiningModel& model, const std::vector<MiningPair>& pairs,
    const HardNegativeOptions& options,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace finetune
