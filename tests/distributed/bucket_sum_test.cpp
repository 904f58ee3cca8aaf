// SPDX-License-Identifier: MIT
#include "finetune/distributed/bucket_sum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "distributed/gloo_members.h"
#include "distributed/thread_world.h"

namespace finetune::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns numbers of very different magnitudes, so that every order of addition gives different
// bits.
std::vector<Tensor> gradients_of(int64_t rank) {
  std::vector<Tensor> list;
  for (const int64_t size : {70, 3, 400, 1, 129, 33}) {
    const Tensor x = at::arange(size, at::kFloat) + static_cast<double>(3 * rank + 1);
    list.push_back((x * 1.37).sin() * (x * 0.071).exp().fmod(1e4));
  }
  list[2] = list[2].view({20, 20});
  return list;
}

BucketSum::Options small_buckets() { return {.bucket_bytes = 600}; }

// Returns the sum of one update, with each gradient in the sum's memory.
std::vector<Tensor> summed(BucketSum& sum, World& world, const std::vector<size_t>& order) {
  const std::vector<Tensor> own = gradients_of(world.rank());
  const std::vector<Tensor> gradients = sum.memory();
  for (size_t i = 0; i < own.size(); ++i) gradients[i].copy_(own[i]);
  sum.begin();
  for (const size_t i : order) {
    sum.ready(i, gradients[i]);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  sum.finish(gradients);
  std::vector<Tensor> result;
  for (const Tensor& gradient : gradients) result.push_back(gradient.clone());
  return result;
}

void expect_equal(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i])) << i;
}

TEST(BucketLayout, TakesTheLastTensorsFirst) {
  const BucketLayout layout({100, 5, 10, 40}, 4 * 64);
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_THAT(layout.buckets[0].tensors, ElementsAre(3, 2));
  EXPECT_THAT(layout.buckets[0].offsets, ElementsAre(0, 48));
  EXPECT_EQ(layout.buckets[0].values, 64);
  EXPECT_THAT(layout.buckets[1].tensors, ElementsAre(1));
  EXPECT_THAT(layout.bucket_of, ElementsAre(2, 1, 0, 0));
}

TEST(BucketSum, AddsEveryTensorOfEveryProcess) {
  in_processes(3, [](World& world) {
    BucketSum sum(world, gradients_of(0), small_buckets());
    for (int update = 0; update < 3; ++update) {
      const std::vector<Tensor> result = summed(sum, world, {5, 4, 3, 2, 1, 0});
      for (size_t i = 0; i < result.size(); ++i) {
        const Tensor expected = gradients_of(0)[i] + gradients_of(1)[i] + gradients_of(2)[i];
        EXPECT_TRUE(result[i].equal(expected)) << i;
      }
    }
  });
}

class BucketSumOverGloo : public GlooMembers {};

TEST_F(BucketSumOverGloo, HasTheBitsOfASumBehindTheBackwardPass) {
  const auto ends = run(4, [](World& world) {
    BucketSum sum(world, gradients_of(0), small_buckets());
    const std::vector<Tensor> after = summed(sum, world, {});
    expect_equal(summed(sum, world, {5, 4, 3, 2, 1, 0}), after);
    // Each rank has its own order, and one of them lacks a parameter's gradient.
    if (world.rank() % 2 == 0) {
      expect_equal(summed(sum, world, {0, 3, 5, 1, 4}), after);
    } else {
      expect_equal(summed(sum, world, {2, 5, 4}), after);
    }
    // A bucket has the same bits as the collective itself.
    const BucketLayout layout({70, 3, 400, 1, 129, 33}, 600);
    for (const BucketLayout::Bucket& bucket : layout.buckets) {
      const Tensor flat = at::zeros({bucket.values}, at::kFloat);
      const std::vector<Tensor> own = gradients_of(world.rank());
      const auto part = [&](size_t i) {
        const Tensor& tensor = own[bucket.tensors[i]];
        return flat.narrow(0, bucket.offsets[i], tensor.numel()).view_as(tensor);
      };
      for (size_t i = 0; i < bucket.tensors.size(); ++i) part(i).copy_(own[bucket.tensors[i]]);
      world.sum(flat);
      for (size_t i = 0; i < bucket.tensors.size(); ++i) {
        EXPECT_TRUE(part(i).equal(after[bucket.tensors[i]]));
      }
    }
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

TEST_F(BucketSumOverGloo, SendsABucketBeforeTheLastGradientIsThere) {
  const auto ends = run(2, [](World& world) {
    BucketSum sum(world, gradients_of(0), small_buckets());
    const std::vector<Tensor> gradients = sum.memory();
    sum.begin();
    sum.ready(5, gradients[5]);
    sum.ready(4, gradients[4]);
    sum.ready(3, gradients[3]);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    sum.finish(gradients);
    const BucketSum::Trace& trace = sum.trace();
    EXPECT_LT(trace.buckets.front().done, trace.finish);
    EXPECT_GE(trace.buckets.back().sent, trace.finish);
    EXPECT_GE(trace.end, trace.buckets.back().done);
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

TEST_F(BucketSumOverGloo, HasTheSameBitsWhereTheCallerBeginsSums) {
  for (const SentFormat sent :
       {SentFormat::kFloat32, SentFormat::kFloat16, SentFormat::kBFloat16}) {
    const auto ends = run(3, [sent](World& world) {
      BucketSum::Options options = small_buckets();
      options.sent = sent;
      BucketSum with_thread(world, gradients_of(0), options);
      const std::vector<Tensor> expected = summed(with_thread, world, {5, 4, 3, 2, 1, 0});
      options.has_thread = false;
      BucketSum without(world, gradients_of(0), options);
      for (int update = 0; update < 2; ++update) {
        expect_equal(summed(without, world, {5, 4, 3, 2, 1, 0}), expected);
        expect_equal(summed(without, world, {0, 3, 5}), expected);
      }
      options.owns_memory = false;
      BucketSum elsewhere(world, gradients_of(0), options);
      const std::vector<Tensor> gradients = gradients_of(world.rank());
      elsewhere.begin();
      for (const size_t i : {5, 4, 2}) elsewhere.ready(i, gradients[i]);
      elsewhere.finish(gradients);
      expect_equal(gradients, expected);
    });
    EXPECT_THAT(ends, Each(IsEmpty()));
  }
}

// Completes begun sums as late as possible, like a busy device.
class LateWorld final : public World {
 public:
  struct Log {
    std::vector<std::string> events = {};
    int64_t fails_at = -1;  // index of the sum that fails
  };

  explicit LateWorld(Log& log) : log_(log) {}
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t size() const override { return 2; }
  void sum(std::span<double>) override { FAIL(); }
  void sum(std::span<int64_t>) override { FAIL(); }
  [[nodiscard]] std::string broadcast(const std::string& text) override { return text; }
  void broadcast(const Tensor&, int64_t) override { FAIL(); }
  void all_to_all(const Tensor&, const Tensor&, const std::vector<int64_t>&,
                  const std::vector<int64_t>&) override {
    FAIL();
  }
  void all_gather(const Tensor&, const Tensor&) override { FAIL(); }
  void sum(const Tensor&) override { FAIL() << "nothing waits for a sum"; }
  [[nodiscard]] std::unique_ptr<BegunSum> begin_sum(const Tensor& values) override {
    log_.events.push_back("begin " + std::to_string(begun_));
    return std::make_unique<LateSum>(log_, begun_++, values);
  }

 private:
  class LateSum final : public BegunSum {
   public:
    LateSum(Log& log, int64_t number, Tensor values)
        : log_(log), number_(number), values_(std::move(values)) {}
    void wait() override {
      log_.events.push_back("wait " + std::to_string(number_));
      if (number_ == log_.fails_at) throw PeerLost("gone");
      values_.mul_(2.0);  // the other rank has the same values
    }

   private:
    Log& log_;
    int64_t number_;
    Tensor values_;
  };

  Log& log_;
  int64_t begun_ = 0;
};

TEST(BegunSums, WaitForNothingBeforeTheEnd) {
  LateWorld::Log log;
  LateWorld world(log);
  BucketSum sum(world, gradients_of(0), {.bucket_bytes = 600, .has_thread = false});
  const std::vector<Tensor> gradients = sum.memory();
  const std::vector<Tensor> own = gradients_of(0);
  for (size_t i = 0; i < own.size(); ++i) gradients[i].copy_(own[i]);
  sum.begin();
  for (const size_t i : {5, 3}) sum.ready(i, gradients[i]);
  EXPECT_THAT(log.events, ElementsAre("begin 0"));  // the second bucket belongs to the fifth tensor
  for (const size_t i : {4, 1, 0}) sum.ready(i, gradients[i]);
  EXPECT_THAT(log.events, ElementsAre("begin 0", "begin 1", "begin 2"));
  log.events.clear();
  sum.finish(gradients);
  EXPECT_THAT(log.events,
              ElementsAre("begin 3", "begin 4", "wait 0", "wait 1", "wait 2", "wait 3", "wait 4"));
  for (size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(gradients[i].equal(own[i] * 2.0)) << i;
}

TEST(BegunSums, TellTheEndThatAnotherIsGone) {
  LateWorld::Log log{.fails_at = 1};
  LateWorld world(log);
  BucketSum sum(world, gradients_of(0), {.bucket_bytes = 600, .has_thread = false});
  sum.begin();
  EXPECT_THROW(sum.finish(sum.memory()), PeerLost);
  EXPECT_THAT(log.events, ElementsAre("begin 0", "begin 1", "begin 2", "begin 3", "begin 4",
                                      "wait 0", "wait 1"));
}

TEST_F(BucketSumOverGloo, SumsWhatLiesElsewhere) {
  const auto ends = run(2, [](World& world) {
    BucketSum::Options options = small_buckets();
    options.owns_memory = false;
    BucketSum sum(world, gradients_of(0), options);
    std::vector<Tensor> gradients = gradients_of(world.rank());
    gradients[0] = gradients[0].to(at::kBFloat16);
    sum.begin();
    sum.finish(gradients);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto type = gradients[i].scalar_type();
      const Tensor expected =
          gradients_of(0)[i].to(type).to(at::kFloat) + gradients_of(1)[i].to(type).to(at::kFloat);
      EXPECT_TRUE(gradients[i].equal(expected.to(type))) << i;
    }
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

TEST_F(BucketSumOverGloo, SendsTwoBytesOfAShareOfTheMean) {
  for (const SentFormat format : {SentFormat::kFloat16, SentFormat::kBFloat16}) {
    const auto ends = run(4, [format](World& world) {
      BucketSum::Options options = small_buckets();
      options.sent = format;
      BucketSum sum(world, gradients_of(0), options);
      const std::vector<Tensor> gradients = sum.memory();
      // The sum exceeds the range of float16.
      for (const Tensor& gradient : gradients) gradient.fill_(30000.0 + 10.0 * world.rank());
      sum.begin();
      sum.finish(gradients);
      const double tolerance = format == SentFormat::kFloat16 ? 1e-3 : 8e-3;
      for (const Tensor& gradient : gradients) {
        EXPECT_TRUE(((gradient / 120060.0 - 1.0).abs() < tolerance).all().item<bool>());
        const Tensor first = gradient.clone();
        world.broadcast(first, 0);
        EXPECT_TRUE(gradient.equal(first));
      }
    });
    EXPECT_THAT(ends, Each(IsEmpty()));
  }
}

TEST_F(BucketSumOverGloo, TellsTheTrainingThreadThatAnotherIsGone) {
  const auto ends = run(2, [](World& world) {
    if (world.rank() == 1) return;
    BucketSum sum(world, gradients_of(0), small_buckets());
    for (int update = 0; update < 100; ++update) (void)summed(sum, world, {5, 4, 3, 2, 1, 0});
  });
  EXPECT_THAT(ends[0], HasSubstr("lost: the connection to another process is lost"));
}

}  // namespace
}  // namespace finetune::testing
