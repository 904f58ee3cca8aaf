// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/dataset.h"
#include "finetune/data/long_step.h"

namespace finetune {

struct PackingOptions {
  int64_t capacity = 512;  // tokens of a row
  // Rows follow the order of samples; false: samples of a row are spread over the data.
  bool keeps_order = false;
};

// Assigns samples to rows of at most `capacity` tokens. A function of the samples' lengths alone,
// so every epoch has the same rows (in another order) and their number is known from the start. The
// assignment is part of the checkpoint format.
//
// Samples are packed in groups of 256 (every n-th sample of the data) by first fit decreasing. If
// the order is kept, a group is 256 consecutive samples, and the first sample that does not fit
// closes the row. A sample above the capacity gets its own row. Only the index of each group's
// first row is stored; a row is packed again when it is requested.
class PackingPlan {
 public:
  // Reads every length once. `dataset` must outlive the plan. Throws Interrupted. Requires: at
  // least one sample, choices() == 1.
  PackingPlan(const Dataset& dataset, const PackingOptions& options, const ShowStep& show = {});

  [[nodiscard]] int64_t rows() const { return first_rows_.back(); }
  // A packed group.
  struct Group {
    std::vector<int64_t> samples = {};
    std::vector<int64_t> row_of = {};  // row of each sample
    // Temporary memory.
    std::vector<int64_t> lengths = {};
    std::vector<int64_t> rooms = {};
    std::vector<size_t> order = {};
  };
  // Appends the samples of a row in ascending order. `group` is reusable memory. Requires: 0 <= row
  // < rows(). Thread-safe.
  void append(int64_t row, std::vector<int64_t>& samples, Group& group) const;
  void append(int64_t row, std::vector<int64_t>& samples) const {
    Group group;
    append(row, samples, group);
  }

 private:
  static constexpr int64_t kGroup = 256;

  [[nodiscard]] int64_t pack(int64_t number, Group& group) const;  // returns the number of its rows

  const Dataset& dataset_;
  PackingOptions options_;
  int64_t groups_;
  std::vector<int64_t> first_rows_;  // [groups + 1]
};

}  // namespace finetune
