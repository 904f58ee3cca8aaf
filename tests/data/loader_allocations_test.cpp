// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/data/collate.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/loader.h"
#include "finetune/data/mixed_pretraining.h"
#include "finetune/data/shard_examples.h"
#include "finetune/data/shard_writer.h"
#include "finetune/data/token_dataset.h"
#include "support/counted_allocations.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;

constexpr int64_t kCountedSamples = 64;

std::shared_ptr<const Dataset> dataset(bool has_classes) {
  TokenContent content;
  for (int64_t i = 0; i < kCountedSamples; ++i) {
    const auto length = static_cast<size_t>(20 + i % 7);
    content.ids.insert(content.ids.end(), length, ByteTokenizer::kFirstByte + 1);
    content.types.insert(content.types.end(), length, static_cast<uint8_t>(i % 2));
    content.offsets.push_back(std::ssize(content.ids));
    if (has_classes) content.classes.push_back(static_cast<int32_t>(i % 3));
  }
  return std::make_shared<TokenDataset>(std::move(content));
}

// Returns the allocations of the first epoch without any, or of the last one. Until then every
// buffer grows to its final size: with workers each slot and each thread must have processed the
// longest update, and on a busy machine a thread may get none for several epochs.
int64_t allocations_of_an_epoch(Loader& loader) {
  constexpr int64_t kMostEpochs = 200;
  Position position;
  int64_t before = allocations;
  int64_t counted = 0;
  while (position.epoch < kMostEpochs) {
    static_cast<void>(loader.take(position));
    const int64_t epoch = position.epoch;
    position = loader.after(position);
    if (position.epoch == epoch) continue;
    counted = allocations - before;
    if (counted == 0) break;
    before = allocations;
  }
  return counted;
}

// Samples in the order of the files: each update has the same size in every epoch.
constexpr LoaderOptions kAsTheyLie = {
    .batch_size = 7, .micro_batches = 2, .sampling = SamplingStrategy::kSequential};

void expect_none(const std::shared_ptr<const Dataset>& data,
                 const std::shared_ptr<const Collator>& collator,
                 LoaderOptions options = kAsTheyLie) {
  for (options.workers = 0; options.workers <= 2; options.workers += 2) {
    Loader loader(data, collator, options);
    EXPECT_EQ(allocations_of_an_epoch(loader), 0) << options.workers << " workers";
  }
  EvaluationLoader evaluation(data, collator, 7);
  Batch batch;
  int64_t before = 0;
  for (int pass = 0; pass < 2; ++pass) {
    before = allocations;
    for (int64_t i = 0; i < evaluation.batches(); ++i) evaluation.get(i, batch);
  }
  EXPECT_EQ(allocations - before, 0) << "in evaluation";
}

std::shared_ptr<const Collator> masking() {
  return std::make_shared<MaskedLmCollator>(MaskedLmOptions::from(ByteTokenizer()));
}
std::shared_ptr<const Collator> for_pretraining() {
  return std::make_shared<PretrainingCollator>(PaddingOptions::from(ByteTokenizer()));
}

std::shared_ptr<const DocumentExamples> documents(bool whole_words) {
  Documents documents;
  for (int64_t sentence = 0; sentence < 300; ++sentence) {
    documents.ids.insert(documents.ids.end(), static_cast<size_t>(1 + sentence % 9),
                         ByteTokenizer::kFirstByte + 1);
    documents.sentences.push_back(std::ssize(documents.ids));
    if (sentence % 20 == 19) documents.documents.push_back(sentence + 1);
  }
  ExampleOptions options = ExampleOptions::from(ByteTokenizer(), whole_words);
  options.max_seq_length = 32;
  return std::make_shared<DocumentExamples>(std::move(documents), options);
}

TEST(LoaderAllocations, AreNoneForMaskedBatchesOnceBuffersHaveTheirSize) {
  expect_none(dataset(false), masking());
}

TEST(LoaderAllocations, AreNoneForLabelledBatchesOnceBuffersHaveTheirSize) {
  const auto collator = std::make_shared<PaddingCollator>(PaddingOptions::from(ByteTokenizer()));
  expect_none(dataset(true), collator);
}

TEST(LoaderAllocations, AreNoneForPackedRows) {
  LoaderOptions options = kAsTheyLie;
  options.batch_size = 3;
  options.packed_length = 60;
  expect_none(dataset(false), masking(), options);
  options.sampling = SamplingStrategy::kRandom;
  // A single batch of all samples, so that the epoch's order does not change its size.
  options.batch_size = 64;
  options.micro_batches = 1;
  expect_none(dataset(false), masking(), options);
}

TEST(LoaderAllocations, AreNoneForSamplesGroupedByLength) {
  LoaderOptions options = kAsTheyLie;
  options.sampling = SamplingStrategy::kGroupByLength;
  options.length_group = kCountedSamples;
  options.batch_size = kCountedSamples;
  options.micro_batches = 1;
  expect_none(dataset(false), masking(), options);
}

TEST(LoaderAllocations, AreNoneForExamplesOfDocumentsAndTheirMixture) {
  expect_none(documents(false), for_pretraining());
  expect_none(documents(true), for_pretraining());
  const auto mixture = std::make_shared<const MixedDataset>(
      std::vector<MixturePart>{{documents(false), 1.0}, {documents(true), 3.0}}, "train_file");
  expect_none(std::make_shared<const MixedPretraining>(mixture), for_pretraining());
}

TEST(LoaderAllocations, AreNoneForExamplesOfShards) {
  const testing::TemporaryFolder folder;
  const auto examples = documents(false);
  const ShardWriterOptions options{
      .folder = folder.path(),
      .shards = 2,
      .layout = {.max_seq_length = 32, .max_predictions = examples->max_predictions()}};
  static_cast<void>(write_shards(FileSystem::local(), *examples, options));
  ShardOptions read;
  read.max_seq_length = 32;
  const auto shards =
      std::make_shared<const ShardExamples>(std::vector<std::string>{folder / "*.tfrecord"}, read);
  expect_none(shards, for_pretraining());
}

}  // namespace
}  // namespace finetune
