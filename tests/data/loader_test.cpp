// SPDX-License-Identifier: MIT
#include "finetune/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "data/token_samples.h"
#include "finetune/base/error.h"
#include "finetune/data/collate.h"
#include "finetune/data/token_dataset.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;
using ::testing::ElementsAre;

constexpr int64_t kSamples = 45;
constexpr size_t kLength = 12;

// Sample i contains the byte i, so that a row shows which sample it is.
std::shared_ptr<const Dataset> dataset() {
  TokenContent content;
  for (int32_t i = 0; i < kSamples; ++i) {
    content.ids.insert(content.ids.end(), kLength, ByteTokenizer::kFirstByte + i);
    content.offsets.push_back(static_cast<int64_t>(content.ids.size()));
  }
  return std::make_shared<TokenDataset>(std::move(content));
}

std::shared_ptr<const Collator> collator() {
  return std::make_shared<MaskedLmCollator>(MaskedLmOptions::from(ByteTokenizer()));
}

Loader make(const LoaderOptions& options) { return Loader(dataset(), collator(), options); }

struct Row {
  int64_t index;
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;
  friend bool operator==(const Row&, const Row&) = default;
};

// Returns an update's rows by their index, whatever the micro-batch size.
std::vector<Row> rows_of(std::span<const Batch> update) {
  std::vector<Row> rows;
  for (const Batch& batch : update) {
    for (int64_t r = 0; r < batch.rows; ++r) {
      const auto part = [&](const std::vector<int64_t>& values) {
        const auto begin = values.begin() + r * batch.length;
        return std::vector<int64_t>(begin, begin + batch.length);
      };
      rows.push_back({batch.first_position + r, part(batch.input_ids), part(batch.labels)});
    }
  }
  return rows;
}

int64_t rows_in(std::span<const Batch> update) {
  return static_cast<int64_t>(rows_of(update).size());
}

// Returns the samples of the rows: the most frequent id, because others may be masked.
std::vector<int64_t> samples_of(std::span<const Batch> update) {
  std::vector<int64_t> samples;
  for (const Row& row : rows_of(update)) {
    std::vector<int64_t> sorted = row.input_ids;
    std::sort(sorted.begin(), sorted.end());
    int64_t best = 0;
    int64_t most = 0;
    for (const int64_t id : sorted) {
      const int64_t count = std::count(sorted.begin(), sorted.end(), id);
      if (id >= ByteTokenizer::kFirstByte && count > most) {
        most = count;
        best = id - ByteTokenizer::kFirstByte;
      }
    }
    samples.push_back(best);
  }
  return samples;
}

// By sample, its labels in an epoch.
std::map<int64_t, std::vector<int64_t>> labels_of_epoch(int64_t epoch) {
  Loader loader = make({.batch_size = kSamples});
  const std::span<const Batch> update = loader.take({.epoch = epoch, .sample = 0});
  const std::vector<int64_t> samples = samples_of(update);
  const std::vector<Row> rows = rows_of(update);
  std::map<int64_t, std::vector<int64_t>> labels;
  for (size_t i = 0; i < rows.size(); ++i) labels[samples[i]] = rows[i].labels;
  return labels;
}

TEST(Loader, MasksOtherTokensOfASampleInAnotherEpoch) {
  const auto first = labels_of_epoch(0);
  const auto second = labels_of_epoch(1);
  ASSERT_EQ(first.size(), static_cast<size_t>(kSamples));
  EXPECT_EQ(labels_of_epoch(0), first);
  int64_t same = 0;
  for (const auto& [sample, labels] : first) same += second.at(sample) == labels ? 1 : 0;
  EXPECT_LT(same, kSamples / 4) << "with 12 tokens some have no mask twice";
}

TEST(Loader, GivesEverySampleOncePerEpoch) {
  Loader loader = make({.batch_size = 4, .micro_batches = 2});
  std::vector<int64_t> seen;
  Position position{.epoch = 3, .sample = 0};
  for (int64_t update = 0; update < loader.updates_per_epoch(); ++update) {
    for (const int64_t sample : samples_of(loader.take(position))) seen.push_back(sample);
    position = loader.after(position);
  }
  EXPECT_EQ(position, (Position{.epoch = 4, .sample = 0}));
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(seen.size(), size_t{kSamples});
  for (int64_t i = 0; i < kSamples; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Loader, GivesTheSameBatchesForEveryNumberOfWorkers) {
  std::vector<std::vector<Row>> expected;
  for (const int64_t workers : {0, 1, 4}) {
    Loader loader = make({.batch_size = 4, .micro_batches = 2, .workers = workers});
    Position position;
    for (size_t update = 0; update < 15; ++update) {
      const std::vector<Row> rows = rows_of(loader.take(position));
      if (workers == 0) expected.push_back(rows);
      EXPECT_EQ(rows, expected[update]) << workers << " workers, update " << update;
      position = loader.after(position);
    }
  }
}

TEST(Loader, GivesTheSameSamplesAndMasksHoweverTheUpdateIsCut) {
  Loader whole = make({.batch_size = 8, .micro_batches = 1});
  for (const LoaderOptions& cut : {LoaderOptions{.batch_size = 2, .micro_batches = 4},
                                   LoaderOptions{.batch_size = 1, .micro_batches = 8}}) {
    Loader loader = make(cut);
    Position position;
    for (int update = 0; update < 7; ++update) {
      EXPECT_EQ(rows_of(loader.take(position)), rows_of(whole.take(position)));
      EXPECT_EQ(loader.after(position), whole.after(position));
      position = whole.after(position);
    }
  }
}

TEST(Loader, GroupsTheSameSamplesHoweverTheUpdateIsCutAndWhoeverPreparesIt) {
  const auto data = testing::samples_of_lengths(testing::uneven_lengths(90));
  const auto make_grouped = [&](LoaderOptions options) {
    options.sampling = SamplingStrategy::kGroupByLength;
    options.length_group = 24;
    return Loader(data, collator(), options);
  };
  Loader whole = make_grouped({.batch_size = 8});
  Loader cut = make_grouped({.batch_size = 2, .micro_batches = 4, .workers = 3});
  const auto samples = [](std::span<const Batch> update) {
    std::vector<int64_t> all;
    for (const Batch& batch : update) {
      all.insert(all.end(), batch.samples.begin(), batch.samples.end());
    }
    return all;
  };
  Position position{.epoch = 1, .sample = 16};
  for (int update = 0; update < 20; ++update) {
    EXPECT_EQ(samples(cut.take(position)), samples(whole.take(position)));
    position = whole.after(position);
  }
}

TEST(Loader, DividesAnUpdateAmongProcessesInTheSamePositions) {
  const LoaderOptions whole{.batch_size = 2, .micro_batches = 4};
  Loader alone = make(whole);
  Loader first = make({.batch_size = 2, .micro_batches = 4, .part = 0, .parts = 2});
  Loader second = make({.batch_size = 2, .micro_batches = 4, .part = 1, .parts = 2});
  for (Position at; at.epoch < 2; at = alone.after(at)) {
    std::vector<Row> rows = rows_of(first.take(at));
    const std::vector<Row> more = rows_of(second.take(at));
    rows.insert(rows.end(), more.begin(), more.end());
    EXPECT_EQ(rows, rows_of(alone.take(at)));
    EXPECT_EQ(first.after(at), alone.after(at));
  }
  // In an epoch's last update of 5 samples the second process has one.
  EXPECT_EQ(rows_of(second.take({.epoch = 0, .sample = 40})).size(), 1U);
}

TEST(Loader, PacksTheSameSamplesHoweverTheUpdateIsCutAndWhoeverPreparesIt) {
  const auto data = testing::samples_of_lengths(testing::uneven_lengths(600));
  Loader whole(data, collator(), {.batch_size = 8, .packed_length = 128});
  Loader cut(data, collator(),
             {.batch_size = 2, .micro_batches = 4, .packed_length = 128, .workers = 3});
  Loader apart(data, collator(), {.batch_size = 1});
  std::map<int64_t, std::vector<int64_t>> unpacked;  // masked ids by sample
  for (int64_t i = 0; i < 600; ++i) {
    const Batch batch = apart.take({.epoch = 1, .sample = i})[0];
    unpacked[batch.samples[0]] = batch.input_ids;
  }
  Position position{.epoch = 1, .sample = 0};
  int64_t samples = 0;
  while (position.epoch == 1) {
    const Batch expected = whole.take(position)[0];
    int64_t index = 0;
    for (const Batch& batch : cut.take(position)) {
      EXPECT_EQ(batch.first_position, index);
      EXPECT_LE(batch.tokens, 2 * 128);
      for (int64_t row = 0; row < batch.rows; ++row, ++index) {
        const int64_t sample = batch.samples[static_cast<size_t>(row)];
        EXPECT_EQ(sample, expected.samples[static_cast<size_t>(index)]);
        const auto begin = batch.input_ids.begin() + row * batch.length;
        const std::vector<int64_t>& ids = unpacked.at(sample);
        EXPECT_TRUE(std::equal(ids.begin(), ids.end(), begin)) << "other masks";
      }
    }
    EXPECT_EQ(index, expected.rows);
    EXPECT_EQ(expected.packed_rows,
              std::min<int64_t>(8, whole.samples_per_epoch() - position.sample));
    samples += index;
    position = whole.after(position);
  }
  EXPECT_EQ(samples, 600);
}

TEST(Loader, CountsPositionsThroughAllMicroBatchesOfAnUpdate) {
  Loader loader = make({.batch_size = 3, .micro_batches = 3});
  const std::span<const Batch> update = loader.take({.epoch = 0, .sample = 9});
  ASSERT_EQ(update.size(), 3U);
  EXPECT_EQ(update[0].first_position, 0);
  EXPECT_EQ(update[1].first_position, 3);
  EXPECT_EQ(update[2].first_position, 6);
}

TEST(Loader, StartsAnywhereAtOnce) {
  for (const int64_t workers : {0, 2}) {
    Loader loader = make({.batch_size = 4, .micro_batches = 2, .workers = workers});
    const std::vector<Row> at_16 = rows_of(loader.take({.epoch = 0, .sample = 16}));
    const std::vector<Row> at_5 = rows_of(loader.take({.epoch = 2, .sample = 5}));
    const std::vector<Row> at_24 = rows_of(loader.take({.epoch = 0, .sample = 24}));
    EXPECT_EQ(rows_of(loader.take({.epoch = 2, .sample = 5})), at_5);
    EXPECT_EQ(rows_of(loader.take({.epoch = 0, .sample = 16})), at_16);
    EXPECT_EQ(rows_of(loader.take({.epoch = 0, .sample = 24})), at_24);
    EXPECT_NE(at_16, at_24);
  }
}

TEST(Loader, EndsAnEpochWithASmallerUpdate) {
  Loader loader = make({.batch_size = 4, .micro_batches = 2});  // 45 = 5 x 8 + 5
  EXPECT_EQ(loader.samples_per_epoch(), 45);
  EXPECT_EQ(loader.updates_per_epoch(), 6);
  const std::span<const Batch> last = loader.take({.epoch = 0, .sample = 40});
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].rows, 4);
  EXPECT_EQ(last[1].rows, 1);
}

TEST(Loader, LeavesOutTheLastShorterMicroBatchWhereAskedTo) {
  Loader loader = make({.batch_size = 4, .micro_batches = 2, .drop_last = true});
  EXPECT_EQ(loader.samples_per_epoch(), 44);
  const std::span<const Batch> last = loader.take({.epoch = 0, .sample = 40});
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].rows, 4);
  EXPECT_EQ(loader.after({.epoch = 0, .sample = 40}), (Position{.epoch = 1, .sample = 0}));
}

TEST(Loader, TakesAPositionBehindTheEpochForTheNextOne) {
  Loader loader = make({.batch_size = 4, .micro_batches = 2, .drop_last = true});
  EXPECT_EQ(rows_of(loader.take({.epoch = 0, .sample = 44})), rows_of(loader.take({.epoch = 1})));
  EXPECT_EQ(loader.after({.epoch = 0, .sample = 44}), (Position{.epoch = 1, .sample = 8}));
}

TEST(Loader, KeepsTheOrderOfTheFileWhereAskedTo) {
  Loader loader = make({.batch_size = 4, .sampling = SamplingStrategy::kSequential});
  EXPECT_THAT(samples_of(loader.take({.epoch = 0, .sample = 8})), ElementsAre(8, 9, 10, 11));
}

TEST(Loader, ShufflesEveryEpochAnew) {
  Loader loader = make({.batch_size = 45});
  EXPECT_NE(samples_of(loader.take({.epoch = 0})), samples_of(loader.take({.epoch = 1})));
}

TEST(Loader, RefusesToDropEverything) {
  EXPECT_GOLDEN(testing::message_of<Error>(
      [] { static_cast<void>(make({.batch_size = 46, .drop_last = true})); }));
}

// Fails on one sample only.
class FaultyCollator final : public Collator {
 public:
  void collate(const Dataset&, std::span<const SampleKey> samples, Batch& batch) const override {
    batch.clear();
    batch.rows = static_cast<int64_t>(samples.size());
    batch.length = 0;
    if (samples.front().index == 16) throw Error(ErrorKind::kData, "sample 16 is bad");
  }
};

TEST(Loader, DropsAsManySamplesWhereTheyAreTakenFewerAtATime) {
  const Loader whole = make({.batch_size = 8, .micro_batches = 2, .drop_last = true});
  Loader cut = make({.batch_size = 2, .micro_batches = 8, .drop_last = true, .drop_multiple = 8});
  EXPECT_EQ(cut.samples_per_epoch(), whole.samples_per_epoch());
  EXPECT_EQ(cut.updates_per_epoch(), whole.updates_per_epoch());
  EXPECT_EQ(cut.take({.epoch = 0, .sample = 32}).size(), 4U);
}

TEST(Loader, ThrowsAWorkersErrorFromTheTakeItConcerns) {
  for (const int64_t workers : {0, 1, 3}) {
    Loader loader(dataset(), std::make_shared<FaultyCollator>(),
                  {.batch_size = 8, .sampling = SamplingStrategy::kSequential, .workers = workers});
    EXPECT_EQ(rows_in(loader.take({.sample = 0})), 8);
    EXPECT_EQ(rows_in(loader.take({.sample = 8})), 8);
    EXPECT_THROW(static_cast<void>(loader.take({.sample = 16})), Error);
    EXPECT_EQ(rows_in(loader.take({.sample = 24})), 8);
    EXPECT_THROW(static_cast<void>(loader.take({.sample = 16})), Error);
  }
}

TEST(EvaluationLoader, GivesEverySampleInOrderWithMasksOfTheSampleAlone) {
  EvaluationLoader narrow(dataset(), collator(), 4);
  EvaluationLoader wide(dataset(), collator(), 45);
  EXPECT_EQ(narrow.batches(), 12);
  EXPECT_EQ(wide.batches(), 1);
  std::vector<Batch> all;
  for (int64_t i = 0; i < narrow.batches(); ++i) {
    all.push_back(narrow.get(i));
    all.back().first_position = i * 4;
  }
  EXPECT_EQ(all.back().rows, 1);
  const Batch whole = wide.get(0);
  EXPECT_EQ(rows_of(all), rows_of({&whole, 1}));
}

}  // namespace
}  // namespace finetune
