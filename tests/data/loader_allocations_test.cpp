// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "data/byte_tokenizer.h"
#include "finetune/data/collate.h"
#include "finetune/data/loader.h"
#include "finetune/data/token_dataset.h"
#include "support/counted_allocations.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;

constexpr int64_t kSamples = 64;

std::shared_ptr<const Dataset> dataset(bool has_classes) {
  TokenContent content;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto length = static_cast<size_t>(20 + i % 7);
    content.ids.insert(content.ids.end(), length, ByteTokenizer::kFirstByte + 1);
    content.types.insert(content.types.end(), length, static_cast<uint8_t>(i % 2));
    content.offsets.push_back(std::ssize(content.ids));
    if (has_classes) content.classes.push_back(static_cast<int32_t>(i % 3));
  }
  return std::make_shared<TokenDataset>(std::move(content));
}

// Those of an epoch, behind the epochs in which every buffer finds its size: with workers each of
// the places that updates are prepared in must have seen the longest of them.
int64_t allocations_of_an_epoch(Loader& loader) {
  constexpr int64_t kEpochs = 9;
  Position position;
  int64_t before = 0;
  while (position.epoch < kEpochs) {
    if (position.sample == 0) before = allocations;
    static_cast<void>(loader.take(position));
    position = loader.after(position);
  }
  return allocations - before;
}

void expect_none(std::shared_ptr<const Dataset> data, std::shared_ptr<const Collator> collator,
                 int64_t workers) {
  // Samples as they lie: each update of an epoch is as long as in the epoch before.
  Loader loader(std::move(data), std::move(collator),
                {.batch_size = 7,
                 .micro_batches = 2,
                 .sampling = SamplingStrategy::kSequential,
                 .workers = workers});
  EXPECT_EQ(allocations_of_an_epoch(loader), 0) << workers << " workers";
}

TEST(LoaderAllocations, AreNoneForMaskedBatchesOnceBuffersHaveTheirSize) {
  const auto collator = std::make_shared<MaskedLmCollator>(MaskedLmOptions::from(ByteTokenizer()));
  expect_none(dataset(false), collator, 0);
  expect_none(dataset(false), collator, 2);
}

TEST(LoaderAllocations, AreNoneForLabelledBatchesOnceBuffersHaveTheirSize) {
  const auto collator = std::make_shared<PaddingCollator>(PaddingOptions::from(ByteTokenizer()));
  expect_none(dataset(true), collator, 0);
  expect_none(dataset(true), collator, 2);
}

}  // namespace
}  // namespace finetune
