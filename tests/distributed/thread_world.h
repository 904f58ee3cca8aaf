// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "finetune/distributed/world.h"
#include "finetune/tensor/device.h"

namespace finetune::testing {

// A world of threads instead of processes, which communicate in memory.
class ThreadWorld final : public World {
 public:
  struct Collective {
    explicit Collective(int64_t size) : barrier(size), given(static_cast<size_t>(size)) {}
    std::barrier<> barrier;
    std::vector<Tensor> given;
    std::vector<std::vector<int64_t>> sizes = std::vector<std::vector<int64_t>>(given.size());
  };

  ThreadWorld(Collective& collective, int64_t rank) : collective_(collective), rank_(rank) {}

  [[nodiscard]] int64_t rank() const override { return rank_; }
  [[nodiscard]] int64_t size() const override {
    return static_cast<int64_t>(collective_.given.size());
  }
  void sum(std::span<double> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble));
  }
  void sum(std::span<int64_t> values) override {
    sum(at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong));
  }
  [[nodiscard]] std::string broadcast(const std::string& text) override { return text; }
  void broadcast(const Tensor& values, int64_t from) override {
    meet(values, {}, [&] {
      if (rank_ != from) values.copy_(collective_.given[static_cast<size_t>(from)]);
      return [] {};
    });
  }
  void sum(const Tensor& values) override {
    meet(values, {}, [&] {
      Tensor total = collective_.given[0].clone();
      for (size_t i = 1; i < collective_.given.size(); ++i) total.add_(collective_.given[i]);
      return [&values, total] { values.copy_(total); };
    });
  }
  void all_to_all(const Tensor& output, const Tensor& input,
                  const std::vector<int64_t>& output_sizes,
                  const std::vector<int64_t>& input_sizes) override {
    meet(input, input_sizes, [&] {
      int64_t at = 0;
      for (size_t from = 0; from < collective_.given.size(); ++from) {
        const std::vector<int64_t>& sizes = collective_.sizes[from];
        int64_t begin = 0;
        for (int64_t to = 0; to < rank_; ++to) begin += sizes[static_cast<size_t>(to)];
        const int64_t count = sizes[static_cast<size_t>(rank_)];
        EXPECT_EQ(count, output_sizes[from]);
        output.narrow(0, at, count).copy_(collective_.given[from].narrow(0, begin, count));
        at += count;
      }
      return [] {};
    });
  }
  void all_gather(const Tensor& whole, const Tensor& part) override {
    meet(part, {}, [&] {
      for (size_t i = 0; i < collective_.given.size(); ++i) {
        whole.narrow(0, static_cast<int64_t>(i) * part.numel(), part.numel())
            .copy_(collective_.given[i]);
      }
      return [] {};
    });
  }

 private:
  template <class Action>
  void meet(const Tensor& given, const std::vector<int64_t>& sizes, const Action& action) {
    collective_.given[static_cast<size_t>(rank_)] = given;
    collective_.sizes[static_cast<size_t>(rank_)] = sizes;
    collective_.barrier.arrive_and_wait();
    const auto finish = action();
    collective_.barrier.arrive_and_wait();
    finish();
    collective_.barrier.arrive_and_wait();
  }

  Collective& collective_;
  int64_t rank_;
};

// Runs `work` in `size` threads, each with its world.
inline void in_processes(int64_t size, const std::function<void(World&)>& work) {
  choose_vector_math();
  ThreadWorld::Collective collective(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&collective, &work, rank] {
      ThreadWorld world(collective, rank);
      work(world);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace finetune::testing
