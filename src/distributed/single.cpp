// SPDX-License-Identifier: MIT
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "finetune/distributed/world.h"

namespace finetune {
namespace {

class SingleProcess final : public World {
 public:
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t size() const override { return 1; }
  void sum(std::span<double>) override {}
  void sum(std::span<int64_t>) override {}
  [[nodiscard]] std::string broadcast(const std::string& text) override { return text; }
  void broadcast(const Tensor&, int64_t) override {}
  void sum(const Tensor&) override {}
  void all_to_all(const Tensor& output, const Tensor& input, const std::vector<int64_t>&,
                  const std::vector<int64_t>&) override {
    output.copy_(input);
  }
  void all_gather(const Tensor& whole, const Tensor& part) override { whole.copy_(part); }
  [[nodiscard]] std::string connect(const c10::Device&) override { return ""; }
  [[nodiscard]] bool reaches(const c10::Device&) const override { return true; }
};

class DoneSum final : public World::BegunSum {
 public:
  void wait() override {}
};

}  // namespace

std::unique_ptr<World> make_single_process_world() { return std::make_unique<SingleProcess>(); }

std::unique_ptr<World::BegunSum> World::begin_sum(const Tensor& values) {
  sum(values);
  return std::make_unique<DoneSum>();
}

std::string World::connect(const c10::Device&) { return "processes meet in host memory"; }

bool World::reaches(const c10::Device& device) const { return device.is_cpu(); }

bool World::any(bool value) {
  int64_t count = value ? 1 : 0;
  sum(std::span(&count, 1));
  return count > 0;
}

std::vector<std::string> World::gather(const std::string& bytes) {
  std::vector<int64_t> sizes(static_cast<size_t>(size()), 0);
  sizes[static_cast<size_t>(rank())] = static_cast<int64_t>(bytes.size());
  sum(sizes);
  const int64_t longest = *std::ranges::max_element(sizes);
  if (longest == 0) return std::vector<std::string>(sizes.size());
  const Tensor part = at::zeros({longest}, at::kByte);
  std::memcpy(part.mutable_data_ptr(), bytes.data(), bytes.size());
  const Tensor whole = at::empty({longest * size()}, at::kByte);
  all_gather(whole, part);
  std::vector<std::string> result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Tensor of_rank = whole.narrow(0, static_cast<int64_t>(i) * longest, sizes[i]);
    result.emplace_back(static_cast<const char*>(of_rank.const_data_ptr()),
                        static_cast<size_t>(sizes[i]));
  }
  return result;
}

}  // namespace finetune
