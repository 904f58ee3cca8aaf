// SPDX-License-Identifier: MIT
#include "finetune/data/collate.h"

#include <algorithm>
#include <utility>

#include "data/loading/padding.h"
#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

// Appends the targets of a row's sample, which are stored with its first sequence.
void take_targets(Batch& batch, int64_t row, RowCells cells, const Example& example) {
  if (!example.labels.empty()) {
    if (batch.labels.empty()) batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
    take_labels(batch, cells, example.labels);
  }
  if (example.label) {
    batch.classes.push_back(*example.label);
    if (*example.label != kIgnoredLabel) ++batch.targets;
  }
  batch.values.insert(batch.values.end(), example.values.begin(), example.values.end());
  batch.targets += static_cast<int64_t>(example.values.size());
  if (example.answer) {
    const int64_t moved = static_cast<int64_t>(cells.begin) - row * batch.length;
    batch.starts.push_back(example.answer->start + moved);
    batch.ends.push_back(example.answer->end + moved);
    ++batch.targets;
  }
}

}  // namespace

PaddingOptions PaddingOptions::from(const Tokenizer& tokenizer) {
  const auto& pad = tokenizer.special_tokens().pad;
  if (!pad || pad->id < 0) {
    throw Error(ErrorKind::kData,
                "the tokenizer has no pad token, which batches of unequal samples need; choose "
                "another tokenizer, or add a pad_token to its tokenizer_config.json");
  }
  PaddingOptions options;
  options.pad_id = pad->id;
  options.pad_left = tokenizer.sides().pad_left;
  return options;
}

PaddingCollator::PaddingCollator(PaddingOptions options) : options_(options) {
  FT_CHECK(options_.pad_to_multiple_of >= 1, "pad_to_multiple_of is at least 1");
}

void PaddingCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples,
                              Batch& batch) const {
  pad(dataset, samples, options_, batch);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Example example = dataset.get(samples[i].index);
    const int64_t row = static_cast<int64_t>(i) * batch.choices;
    take_targets(batch, row, cells_of(batch, row, example.input_ids.size(), options_.pad_left),
                 example);
  }
}

MaskedLmOptions MaskedLmOptions::from(const Tokenizer& tokenizer) {
  MaskedLmOptions options;
  static_cast<PaddingOptions&>(options) = PaddingOptions::from(tokenizer);
  options.masking = MaskingOptions::from(tokenizer);
  return options;
}

MaskedLmCollator::MaskedLmCollator(MaskedLmOptions options)
    : options_(std::move(options)), masking_(options_.masking) {
  FT_CHECK(options_.pad_to_multiple_of >= 1, "pad_to_multiple_of is at least 1");
}

void MaskedLmCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples,
                               Batch& batch) const {
  pad(dataset, samples, options_, batch);
  FT_CHECK(batch.choices == 1, "masked language modelling has no choices");
  batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const SampleKey& key = samples[static_cast<size_t>(row)];
    const Example example = dataset.get(key.index);
    const RowCells cells = cells_of(batch, row, example.input_ids.size(), options_.pad_left);
    if (!example.labels.empty()) {
      take_labels(batch, cells, example.labels);
      continue;
    }
    batch.targets +=
        masking_.apply(key, std::span(batch.input_ids).subspan(cells.begin, cells.size),
                       std::span(batch.labels).subspan(cells.begin, cells.size));
  }
}

CausalLmCollator::CausalLmCollator(PaddingOptions options) : options_(options) {
  FT_CHECK(options_.pad_to_multiple_of >= 1, "pad_to_multiple_of is at least 1");
  FT_CHECK(!options_.pad_left, "padding follows the tokens");
}

void CausalLmCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples,
                               Batch& batch) const {
  pad(dataset, samples, options_, batch);
  batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t index = samples[static_cast<size_t>(row / batch.choices)].index;
    const Example example = dataset.get(index, row % batch.choices);
    const RowCells cells = cells_of(batch, row, example.input_ids.size(), options_.pad_left);
    if (row % batch.choices == 0) {
      batch.values.insert(batch.values.end(), example.values.begin(), example.values.end());
      if (example.label) batch.classes.push_back(*example.label);
    }
    if (cells.size < 2) continue;
    const RowCells learned = {.begin = cells.begin, .size = cells.size - 1};
    if (!example.labels.empty()) {
      take_labels(batch, learned, example.labels.subspan(1));
      continue;
    }
    std::copy_n(batch.input_ids.begin() + static_cast<std::ptrdiff_t>(cells.begin) + 1,
                learned.size, batch.labels.begin() + static_cast<std::ptrdiff_t>(cells.begin));
    batch.targets += static_cast<int64_t>(learned.size);
  }
}

}  // namespace finetune
