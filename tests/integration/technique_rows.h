// SPDX-License-Identifier: MIT
#pragma once

// Techniques that save memory, in runs that together contain every pair of values of two keys: all
// allowed pairs fit into about 25 runs, instead of one run for each.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "integration/tiny_run.h"

namespace finetune::testing {

// Keys that every run of the suite has.
inline const TinyRun::Keys kTechniqueBase = {{"max_steps", "4"},
                                             {"save_steps", "2"},
                                             {"save_total_limit", ""},
                                             {"eval_strategy", "no"},
                                             {"validation_file", ""},
                                             {"dataloader_num_workers", "0"},
                                             {"gradient_accumulation_steps", "1"},
                                             {"per_device_train_batch_size", "8"}};

struct Factor {
  const char* name;
  std::vector<TinyRun::Keys> values;
};

inline TinyRun::Keys recomputation(const std::string& kwargs) {
  return {{"gradient_checkpointing", "true"}, {"gradient_checkpointing_kwargs", kwargs}};
}

inline const std::vector<Factor> kFactors = {
    {"recomputation",
     {{},
      recomputation("{every_n_layers: 1}"),
      recomputation("{every_n_layers: 2}"),
      recomputation("{offload: true}"),
      recomputation("{selective: true}")}},
    {"optim",
     {{},
      {{"optim", "adamw_8bit"}},
      {{"optim", "adamw_companded_8bit"}},
      {{"optim", "adafactor"}},
      {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}}},
    {"precision", {{}, {{"fp16", "true"}}, {{"bf16", "true"}}}},
    {"weights", {{}, {{"param_dtype", "bfloat16"}}, {{"param_dtype", "bfloat16+int8"}}}},
    {"gradients", {{}, {{"grad_accum_dtype", "bfloat16"}}}},
    {"update",
     {{},
      {{"gradient_accumulation_steps", "2"}, {"per_device_train_batch_size", "4"}},
      {{"optimizer_in_backward", "true"}, {"max_grad_norm", "0"}}}},
};
inline constexpr size_t kPrecision = 2;
inline constexpr size_t kUpdate = 5;

// The value of each factor; -1: not chosen yet.
using TechniqueRow = std::vector<int>;

inline bool is_refused(const TechniqueRow& row) {
  return row[kPrecision] == 1 && row[kUpdate] == 2;
}

// A pair of factors and their values.
struct FactorPair {
  size_t first, second;
  int first_value, second_value;
  auto operator<=>(const FactorPair&) const = default;
};

inline std::set<FactorPair> all_pairs() {
  std::set<FactorPair> pairs;
  for (size_t a = 0; a < kFactors.size(); ++a) {
    for (size_t b = a + 1; b < kFactors.size(); ++b) {
      for (int i = 0; i < std::ssize(kFactors[a].values); ++i) {
        for (int j = 0; j < std::ssize(kFactors[b].values); ++j) {
          TechniqueRow row(kFactors.size(), -1);
          row[a] = i;
          row[b] = j;
          if (!is_refused(row)) pairs.insert({a, b, i, j});
        }
      }
    }
  }
  return pairs;
}

inline int64_t covered_pairs(const TechniqueRow& row, const std::set<FactorPair>& pairs) {
  return std::ranges::count_if(pairs, [&](const FactorPair& pair) {
    return row[pair.first] == pair.first_value && row[pair.second] == pair.second_value;
  });
}

// Returns rows that together contain every pair. Each starts with a missing pair and then chooses,
// factor by factor, the value that adds most missing pairs.
inline std::vector<TechniqueRow> covering_rows() {
  std::set<FactorPair> missing = all_pairs();
  std::vector<TechniqueRow> rows;
  while (!missing.empty()) {
    TechniqueRow row(kFactors.size(), -1);
    row[missing.begin()->first] = missing.begin()->first_value;
    row[missing.begin()->second] = missing.begin()->second_value;
    for (size_t factor = 0; factor < row.size(); ++factor) {
      if (row[factor] >= 0) continue;
      TechniqueRow best;
      for (int value = 0; value < std::ssize(kFactors[factor].values); ++value) {
        TechniqueRow candidate = row;
        candidate[factor] = value;
        if (is_refused(candidate)) continue;
        if (best.empty() || covered_pairs(candidate, missing) > covered_pairs(best, missing))
          best = candidate;
      }
      row = best;
    }
    std::erase_if(missing, [&](const FactorPair& pair) {
      return row[pair.first] == pair.first_value && row[pair.second] == pair.second_value;
    });
    rows.push_back(row);
  }
  return rows;
}

// Returns the keys of a row, over those that every run of the suite has.
inline TinyRun::Keys technique_keys(const TechniqueRow& row) {
  TinyRun::Keys keys = kTechniqueBase;
  for (size_t i = 0; i < kFactors.size(); ++i) {
    for (const auto& [key, value] : kFactors[i].values[static_cast<size_t>(row[i])]) {
      keys[key] = value;
    }
  }
  return keys;
}

inline std::string technique_name(const TechniqueRow& row) {
  std::string name;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] > 0) name += std::string(kFactors[i].name) + std::to_string(row[i]);
  }
  return name.empty() ? "none" : name;
}

}  // namespace finetune::testing
