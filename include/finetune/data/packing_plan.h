// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/dataset.h"
#include "finetune/data/long_step.h"

namespace finetune {

struct PackingOptions {
  int64_t capacity = 512;    // tokens of a row
  bool keeps_order = false;  // rows follow the samples; else each row's samples come from all over
};

// Which samples share a row of at most `capacity` tokens: a function of the samples' lengths alone,
// so every epoch has the same rows (in another order) and their number is known from the start.
// Its values are part of the checkpoint format.
//
// Samples are packed in groups of 256 (every n-th sample of the data), first fit decreasing. If the
// order is kept, a group is 256 consecutive samples, and the first sample that does not fit closes
// the row. A sample above the capacity has its own row. Only the index of each group's first row is
// stored; a row is packed again when it is requested.
class PackingPlan {
 public:
  // Looks at every length once. `dataset` must outlive the plan. Throws Interrupted. Requires:
  // samples, of one choice.
  PackingPlan(const Dataset& dataset, const PackingOptions& options, const ShowStep& show = {});

  [[nodiscard]] int64_t rows() const { return first_rows_.back(); }
  // A group that is packed.
  struct Group {
    std::vector<int64_t> samples = {};
    std::vector<int64_t> row_of = {};  // each
    // What is needed on the way.
    std::vector<int64_t> lengths = {};
    std::vector<int64_t> rooms = {};
    std::vector<size_t> order = {};
  };
  // Appends the samples of a row, rising. `group` is memory that an earlier call may have used.
  // Requires: 0 <= row < rows(). From any thread.
  void append(int64_t row, std::vector<int64_t>& samples, Group& group) const;
  void append(int64_t row, std::vector<int64_t>& samples) const {
    Group group;
    append(row, samples, group);
  }

 private:
  static constexpr int64_t kGroup = 256;

  [[nodiscard]] int64_t pack(int64_t number, Group& group) const;  // returns its rows

  const Dataset& dataset_;
  PackingOptions options_;
  int64_t groups_;
  std::vector<int64_t> first_rows_;  // [groups + 1]
};

}  // namespace finetune
