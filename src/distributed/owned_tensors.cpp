// SPDX-License-Identifier: MIT
#include "finetune/distributed/owned_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {

std::vector<int64_t> balanced_owners(const std::vector<int64_t>& bytes, int64_t processes) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<int64_t> had(static_cast<size_t>(processes), 0);
  std::vector<int64_t> owners(bytes.size());
  for (const size_t position : order) {
    const auto least = std::ranges::min_element(had);
    *least += bytes[position];
    owners[position] = least - had.begin();
  }
  return owners;
}

OwnedTensors::OwnedTensors(World& world, std::vector<Tensor> tensors, std::vector<int64_t> owners,
                           int64_t buffer_bytes)
    : world_(world), owners_(std::move(owners)) {
  FT_CHECK(tensors.size() == owners_.size(), "an owner for each tensor");
  std::vector<int64_t> had(static_cast<size_t>(world.size()), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor values = tensors[i].detach();
    FT_CHECK(values.is_contiguous(), "a tensor with holes");
    bytes_.push_back(values.view({-1}).view(at::kByte));
    had[static_cast<size_t>(owners_[i])] += bytes_.back().numel();
  }
  longest_ = *std::ranges::max_element(had);
  const int64_t part =
      std::min(longest_, std::max<int64_t>(1, buffer_bytes / std::max<int64_t>(1, world.size())));
  const c10::Device device = bytes_.empty() ? c10::Device(c10::kCPU) : bytes_[0].device();
  const auto bytes =
      at::TensorOptions().device(world.reaches(device) ? device : c10::kCPU).dtype(at::kByte);
  part_ = at::zeros({part}, bytes);
  whole_ = at::empty({part * world.size()}, bytes);
}

template <class Action>
void OwnedTensors::for_each_part(int64_t owner, int64_t begin, const Tensor& buffer,
                                 const Action& action) {
  const int64_t end = begin + buffer.numel();
  int64_t at = 0;  // the tensor's offset in its owner's bytes
  for (size_t i = 0; i < bytes_.size() && at < end; ++i) {
    if (owners_[i] != owner) continue;
    const int64_t first = std::max(at, begin);
    const int64_t last = std::min(at + bytes_[i].numel(), end);
    if (first < last) {
      action(bytes_[i].narrow(0, first - at, last - first),
             buffer.narrow(0, first - begin, last - first));
    }
    at += bytes_[i].numel();
  }
}

void OwnedTensors::share() {
  const c10::NoGradGuard no_grad;
  const int64_t part = part_.numel();
  for (int64_t begin = 0; begin < longest_; begin += part) {
    for_each_part(world_.rank(), begin, part_,
                  [](const Tensor& own, const Tensor& position) { position.copy_(own); });
    world_.all_gather(whole_, part_);
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      if (rank == world_.rank()) continue;
      for_each_part(rank, begin, whole_.narrow(0, rank * part, part),
                    [](const Tensor& other, const Tensor& position) { other.copy_(position); });
    }
  }
}

}  // namespace finetune
