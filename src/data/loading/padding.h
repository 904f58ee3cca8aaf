// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "finetune/data/collate.h"

namespace finetune {

// The part of a row that contains its sequence, without the padding.
struct RowCells {
  size_t begin = 0;
  size_t size = 0;
};

[[nodiscard]] RowCells cells_of(const Batch& batch, int64_t row, size_t tokens, bool pad_left);

// Fills a batch with the sequences of the samples: ids, attention, token types, choices, samples
// and tokens, but no targets.
void pad(const Dataset& dataset, std::span<const SampleKey> samples, const PaddingOptions& options,
         Batch& batch);

// Copies a sequence's labels into its part of the row and counts the targets.
void take_labels(Batch& batch, RowCells cells, std::span<const int32_t> labels);

}  // namespace finetune
