// SPDX-License-Identifier: MIT
#include "finetune/data/collate.h"

#include <algorithm>
#include <numeric>

#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

MaskedLmOptions MaskedLmOptions::from(const Tokenizer& tokenizer) {
  const auto& pad = tokenizer.special_tokens().pad;
  if (!pad || pad->id < 0) {
    throw Error(ErrorKind::kData,
                "the tokenizer has no pad token, which batches of unequal samples need; choose "
                "another tokenizer, or add a pad_token to its tokenizer_config.json");
  }
  MaskedLmOptions options;
  options.masking = MaskingOptions::from(tokenizer);
  options.pad_id = pad->id;
  return options;
}

MaskedLmCollator::MaskedLmCollator(MaskedLmOptions options)
    : options_(std::move(options)), masking_(options_.masking) {
  FT_CHECK(options_.pad_to_multiple_of >= 1, "pad_to_multiple_of is at least 1");
}

int64_t MaskedLmCollator::padded_length(int64_t longest) const {
  const int64_t length =
      options_.pad_to_max_length ? std::max(longest, options_.max_seq_length) : longest;
  const int64_t multiple = options_.pad_to_multiple_of;
  return (length + multiple - 1) / multiple * multiple;
}

Batch MaskedLmCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples) const {
  size_t longest = 0;
  for (const SampleKey& key : samples) {
    longest = std::max(longest, dataset.get(key.index).input_ids.size());
  }
  Batch batch;
  batch.rows = static_cast<int64_t>(samples.size());
  batch.length = padded_length(static_cast<int64_t>(longest));
  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  batch.input_ids.assign(cells, options_.pad_id);
  batch.attention_mask.assign(cells, 0);
  batch.labels.assign(cells, kIgnoredLabel);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const SampleKey& key = samples[static_cast<size_t>(row)];
    fill_row(batch, row, dataset.get(key.index), key);
  }
  return batch;
}

void MaskedLmCollator::fill_row(Batch& batch, int64_t row, const Example& example,
                                const SampleKey& key) const {
  const auto start = static_cast<size_t>(row * batch.length);
  const size_t size = example.input_ids.size();
  const std::span ids = std::span(batch.input_ids).subspan(start, size);
  const std::span mask = std::span(batch.attention_mask).subspan(start, size);
  const std::span labels = std::span(batch.labels).subspan(start, size);

  std::copy(example.input_ids.begin(), example.input_ids.end(), ids.begin());
  if (example.attention_mask.empty()) {
    std::fill(mask.begin(), mask.end(), uint8_t{1});
    batch.tokens += static_cast<int64_t>(size);
  } else {
    std::copy(example.attention_mask.begin(), example.attention_mask.end(), mask.begin());
    batch.tokens += std::accumulate(mask.begin(), mask.end(), int64_t{0});
  }
  if (example.labels.empty()) {
    batch.targets += masking_.apply(key, ids, labels);
  } else {
    std::copy(example.labels.begin(), example.labels.end(), labels.begin());
    batch.targets += std::count_if(labels.begin(), labels.end(),
                                   [](int64_t label) { return label != kIgnoredLabel; });
  }
}

}  // namespace finetune
