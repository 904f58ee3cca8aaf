// SPDX-License-Identifier: MIT
#include "data/loading/padding.h"

#include <algorithm>
#include <numeric>

#include "finetune/base/error.h"

namespace finetune {
namespace {

int64_t padded_length(int64_t longest, const PaddingOptions& options) {
  FT_CHECK(options.pad_to_multiple_of >= 1, "pad_to_multiple_of is at least 1");
  const int64_t length =
      options.pad_to_max_length ? std::max(longest, options.max_seq_length) : longest;
  const int64_t multiple = options.pad_to_multiple_of;
  const int64_t rounded = (length + multiple - 1) / multiple * multiple;
  const int64_t most = options.max_seq_length;
  return most == 0 ? rounded : std::max(length, std::min(rounded, most));
}

void fill_row(Batch& batch, RowCells cells, const Example& example) {
  const auto part = [&](auto& values) {
    return std::span(values).subspan(cells.begin, cells.size);
  };
  example.input_ids.copy_to(part(batch.input_ids).data());
  const std::span mask = part(batch.attention_mask);
  if (example.attention_mask.empty()) {
    std::ranges::fill(mask, uint8_t{1});
    batch.tokens += static_cast<int64_t>(cells.size);
  } else {
    std::ranges::copy(example.attention_mask, mask.begin());
    batch.tokens += std::accumulate(mask.begin(), mask.end(), int64_t{0});
  }
  if (example.token_type_ids.empty()) return;
  if (batch.token_type_ids.empty()) batch.token_type_ids.assign(batch.input_ids.size(), 0);
  std::ranges::copy(example.token_type_ids, part(batch.token_type_ids).begin());
}

}  // namespace

RowCells cells_of(const Batch& batch, int64_t row, size_t tokens, bool pad_left) {
  const auto length = static_cast<size_t>(batch.length);
  const size_t begin = static_cast<size_t>(row) * length;
  return {.begin = pad_left ? begin + length - tokens : begin, .size = tokens};
}

void pad(const Dataset& dataset, std::span<const SampleKey> samples, const PaddingOptions& options,
         Batch& batch) {
  batch.clear();
  batch.choices = dataset.choices();
  batch.rows = static_cast<int64_t>(samples.size()) * batch.choices;
  int64_t longest = 0;
  for (const SampleKey& key : samples) {
    batch.samples.push_back(key.index);
    for (int64_t choice = 0; choice < batch.choices; ++choice) {
      longest = std::max(longest, dataset.length(key.index, choice));
    }
  }
  batch.length = padded_length(longest, options);
  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, options.pad_id);
  batch.attention_mask.assign(cells, 0);
  int64_t row = 0;
  for (const SampleKey& key : samples) {
    for (int64_t choice = 0; choice < batch.choices; ++choice) {
      const Example example = dataset.get(key.index, choice);
      fill_row(batch, cells_of(batch, row++, example.input_ids.size(), options.pad_left), example);
    }
  }
}

void take_labels(Batch& batch, RowCells cells, std::span<const int32_t> labels) {
  const std::span to = std::span(batch.labels).subspan(cells.begin, cells.size);
  std::ranges::copy(labels, to.begin());
  batch.targets += std::ranges::count_if(to, [](int64_t label) { return label != kIgnoredLabel; });
}

}  // namespace finetune
