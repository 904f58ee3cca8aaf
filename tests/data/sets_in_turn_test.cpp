// SPDX-License-Identifier: MIT
#include "finetune/data/sets_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "data/loading/sample_order.h"
#include "data/token_samples.h"
#include "finetune/base/error.h"
#include "finetune/data/collate.h"

namespace finetune {
namespace {

using testing::samples_of_lengths;
using testing::uneven_lengths;

constexpr int64_t kUpdate = 8;
constexpr uint64_t kOrderSeed = 7;
const std::vector<int64_t> kSizes = {20, 43, 8};

std::shared_ptr<const MixedDataset> three_parts() {
  std::vector<MixturePart> parts;
  for (const int64_t size : kSizes) {
    parts.push_back({samples_of_lengths(uneven_lengths(size)), static_cast<double>(size),
                     "part of " + std::to_string(size)});
  }
  return std::make_shared<const MixedDataset>(parts, "train_file");
}

SetsInTurn in_turn(SetSampling sampling, int64_t update = kUpdate) {
  return {three_parts(), sampling, update, kOrderSeed, [](const Dataset& part) {
            return make_sample_order(part.size(), SamplingStrategy::kRandom, kOrderSeed);
          }};
}

struct Update {
  int64_t part;
  std::vector<int64_t> samples;
  friend bool operator==(const Update&, const Update&) = default;
};

std::vector<Update> updates_of(const SetsInTurn& sets, int64_t epoch) {
  std::vector<Update> updates;
  for (int64_t first = 0; first < sets.samples_per_epoch(); first += kUpdate) {
    Update& update = updates.emplace_back(Update{sets.part_at(epoch, first), {}});
    for (int64_t i = 0; i < kUpdate; i += 2) {  // as micro-batches
      EXPECT_EQ(sets.part_at(epoch, first + i), update.part);
      sets.append(epoch, first + i, first + i + 2, update.samples);
    }
  }
  return updates;
}

TEST(SetsInTurn, ProportionalShowsEachSampleOfEachPart) {
  const SetsInTurn sets = in_turn(SetSampling::kProportional);
  EXPECT_EQ(sets.samples_per_epoch(), (3 + 6 + 1) * kUpdate);
  const std::vector<Update> updates = updates_of(sets, 2);
  std::map<int64_t, std::map<int64_t, int>> times;
  for (const Update& update : updates) {
    std::vector<int64_t> sorted = update.samples;
    std::ranges::sort(sorted);
    EXPECT_EQ(std::ranges::adjacent_find(sorted), sorted.end()) << "a sample twice in an update";
    for (const int64_t sample : update.samples) ++times[update.part][sample];
  }
  for (size_t part = 0; part < kSizes.size(); ++part) {
    const auto& of_part = times[static_cast<int64_t>(part)];
    EXPECT_EQ(std::ssize(of_part), kSizes[part]);
    const int64_t repeated =
        std::ranges::count_if(of_part, [](const auto& seen) { return seen.second == 2; });
    EXPECT_EQ(repeated, (kUpdate - kSizes[part] % kUpdate) % kUpdate);
  }
  EXPECT_NE(updates, updates_of(sets, 3));
  EXPECT_EQ(updates, updates_of(in_turn(SetSampling::kProportional), 2));
}

TEST(SetsInTurn, RoundRobinEndsWithTheSmallestPart) {
  const SetsInTurn sets = in_turn(SetSampling::kRoundRobin);
  const std::vector<Update> updates = updates_of(sets, 0);
  ASSERT_EQ(updates.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(updates[static_cast<size_t>(i)].part, i);
}

TEST(SetsInTurn, EachPartKeepsTheOrderThatItHasAlone) {
  const SetsInTurn sets = in_turn(SetSampling::kProportional);
  std::map<std::vector<int64_t>, int> alone;
  const auto order = make_sample_order(kSizes[1], SamplingStrategy::kRandom, kOrderSeed);
  for (int64_t first = 0; first + kUpdate <= kSizes[1]; first += kUpdate) {
    std::vector<int64_t> samples;
    order->append(1, first, first + kUpdate, samples);
    ++alone[samples];
  }
  int found = 0;
  for (const Update& update : updates_of(sets, 1)) {
    found += update.part == 1 && alone.contains(update.samples) ? 1 : 0;
  }
  EXPECT_EQ(found, 5);
}

TEST(SetsInTurn, RefusesAPartOfFewerSamplesThanAnUpdate) {
  try {
    in_turn(SetSampling::kProportional, 9);
    ADD_FAILURE() << "8 samples do not fill an update of 9";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("'part of 8' has 8 samples"), std::string::npos);
  }
}

TEST(SetsInTurn, ALoaderSaysOfWhichPartABatchIs) {
  Loader loader(three_parts(), std::make_shared<PaddingCollator>(PaddingOptions()),
                {.batch_size = 2,
                 .micro_batches = kUpdate / 2,
                 .sets = SetSampling::kProportional,
                 .seed = kOrderSeed});
  EXPECT_EQ(loader.updates_per_epoch(), 10);
  const std::vector<Update> expected = updates_of(in_turn(SetSampling::kProportional), 0);
  Position position;
  for (const Update& update : expected) {
    std::vector<int64_t> samples;
    int64_t row = 0;
    for (const Batch& batch : loader.take(position)) {
      EXPECT_EQ(batch.set, update.part);
      EXPECT_EQ(batch.first_position, row);
      row += batch.rows;
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
    EXPECT_EQ(samples, update.samples);
    position = loader.after(position);
  }
  EXPECT_EQ(position, (Position{.epoch = 1, .sample = 0}));
}

}  // namespace
}  // namespace finetune
