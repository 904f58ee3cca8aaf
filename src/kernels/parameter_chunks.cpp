// SPDX-License-Identifier: MIT
#include "finetune/kernels/parameter_chunks.h"

#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/kernels/formats.h"
#include "kernels/cpu/loops/formats.h"
#include "kernels/interface/kernels.h"

namespace finetune {
namespace {

Tensor flat(const Tensor& tensor) { return tensor.detach().view(-1); }

int64_t chunk_size(const Tensor& weight, int64_t row) {
  const int64_t rows =
      std::max<int64_t>(1, kernels::kernels_for(weight.device()).chunk_values / row);
  return std::min(weight.numel(), rows * row);
}

// The gradient in chunks; a chunk is copied only if it must be converted or scaled.
class GradientChunks {
 public:
  GradientChunks(const ParameterTensors& parameter, double factor, int64_t size)
      : gradient_(flat(parameter.gradient)), factor_(factor) {
    if (gradient_.scalar_type() != at::kFloat || factor != 1.0) {
      scaled_ = at::empty({size}, gradient_.options().dtype(at::kFloat));
    }
  }

  [[nodiscard]] Tensor part(int64_t first, int64_t count) const {
    const Tensor stored = gradient_.narrow(0, first, count);
    if (!scaled_.defined()) return stored;
    Tensor result = scaled_.narrow(0, 0, count);
    if (stored.scalar_type() == at::kFloat) {  // in one pass
      return at::mul_out(result, stored, at::native::wrapped_scalar_tensor(factor_));
    }
    result.copy_(stored);
    if (factor_ != 1.0) result.mul_(factor_);
    return result;
  }

 private:
  Tensor gradient_;
  Tensor scaled_;
  double factor_;
};

void check(const ParameterTensors& parameter, int64_t row) {
  FT_CHECK(parameter.weight.is_contiguous() && parameter.gradient.is_contiguous(),
           "parameters and gradients are contiguous");
  FT_CHECK(row > 0 && parameter.weight.numel() % row == 0, "whole rows");
}

// Lists of chunks. 256 KiB of gradients with as much of weights and of each moment fit a core's
// second-level cache, or nearly.
constexpr int64_t kListedValues = int64_t{1} << 16;
// Values of a parameter are divided here only: a multiple of any vector and of a cache line.
constexpr int64_t kUnit = 64;

// The chunks of some parameters in lists of at most kListedValues.
class ChunkLists {
 public:
  ChunkLists(const std::vector<const ParameterTensors*>& parameters, double factor)
      : factor_(static_cast<float>(factor)) {
    for (const ParameterTensors* parameter : parameters) {
      check(*parameter, 1);
      FT_CHECK(parameter->weight.scalar_type() == at::kFloat &&
                   parameter->gradient.scalar_type() == at::kFloat,
               "lists of chunks are of float32");
      weights_.push_back(flat(parameter->weight));
      gradients_.push_back(flat(parameter->gradient));
      first_unit_.push_back(units_);
      units_ += (weights_.back().numel() + kUnit - 1) / kUnit;
    }
  }

  [[nodiscard]] int64_t units() const { return units_; }

  // Requires: begin < end. One thread's share.
  void visit(int64_t begin, int64_t end,
             const std::function<void(std::span<const ListedChunk>)>& update) const {
    Tensor scaled;
    if (factor_ != 1.0F) {
      // Kept by the thread: an update that has begun cannot be repeated after OOM.
      static thread_local std::vector<float> memory;
      const int64_t most = std::min(kListedValues, (end - begin) * kUnit);
      memory.resize(std::max(memory.size(), static_cast<size_t>(most)));
      scaled = at::from_blob(memory.data(), {most}, gradients_.front().options());
    }
    std::vector<ListedChunk> list;
    int64_t listed = 0;
    const auto after = std::upper_bound(first_unit_.begin(), first_unit_.end(), begin);
    auto index = static_cast<size_t>(after - first_unit_.begin()) - 1;
    for (int64_t unit = begin; unit < end;) {
      if (listed == kListedValues) {
        update(list);
        list.clear();
        listed = 0;
      }
      while (index + 1 < first_unit_.size() && first_unit_[index + 1] <= unit) ++index;
      const int64_t first = (unit - first_unit_[index]) * kUnit;
      const int64_t left = std::min((end - unit) * kUnit, kListedValues - listed);
      const int64_t count = std::min(weights_[index].numel() - first, left);
      list.push_back({index, chunk(index, first, count, scaled, listed)});
      const int64_t taken = (count + kUnit - 1) / kUnit;
      unit += taken;
      listed += taken * kUnit;
    }
    if (!list.empty()) update(list);
  }

 private:
  // Its gradient is scaled into `scaled` from `offset` on.
  [[nodiscard]] ParameterChunk chunk(size_t index, int64_t first, int64_t count,
                                     const Tensor& scaled, int64_t offset) const {
    ParameterChunk part{.first = first,
                        .count = count,
                        .weight = weights_[index].narrow(0, first, count),
                        .gradient = gradients_[index].narrow(0, first, count)};
    if (!scaled.defined()) return part;
    const Tensor stored = std::exchange(part.gradient, scaled.narrow(0, offset, count));
    kernels::scale(stored.const_data_ptr<float>(), factor_, part.gradient.mutable_data_ptr<float>(),
                   count);
    return part;
  }

  float factor_;
  std::vector<Tensor> weights_, gradients_;
  std::vector<int64_t> first_unit_;
  int64_t units_ = 0;
};

}  // namespace

Tensor ParameterChunk::of(const Tensor& state) const {
  return state.view(-1).narrow(0, first, count);
}

void read_gradient_in_chunks(const ParameterTensors& parameter, double factor,
                             const std::function<void(const ParameterChunk&)>& read, int64_t row) {
  check(parameter, row);
  const int64_t total = parameter.weight.numel();
  const int64_t size = chunk_size(parameter.weight, row);
  const GradientChunks gradients(parameter, factor, size);
  for (int64_t first = 0; first < total; first += size) {
    const int64_t count = std::min(size, total - first);
    read({.first = first,
          .count = count,
          .weight = Tensor(),
          .gradient = gradients.part(first, count)});
  }
}

void update_in_chunks(const ParameterTensors& parameter, double factor, uint64_t rounding_key,
                      const std::function<void(const ParameterChunk&)>& update, int64_t row) {
  check(parameter, row);
  const Tensor weight = flat(parameter.weight);
  const bool is_wide = weight.scalar_type() == at::kFloat;
  const int64_t size = chunk_size(weight, row);
  const GradientChunks gradients(parameter, factor, size);
  const Tensor values = is_wide ? Tensor() : at::empty({size}, weight.options().dtype(at::kFloat));
  for (int64_t first = 0; first < weight.numel(); first += size) {
    const int64_t count = std::min(size, weight.numel() - first);
    const Tensor stored = weight.narrow(0, first, count);
    const ParameterChunk chunk{.first = first,
                               .count = count,
                               .weight = is_wide ? stored : values.narrow(0, 0, count),
                               .gradient = gradients.part(first, count)};
    if (parameter.correction.defined()) {
      const Tensor correction = flat(parameter.correction).narrow(0, first, count);
      join_values(stored, correction, chunk.weight);
      update(chunk);
      split_values(chunk.weight, stored, correction);
    } else if (!is_wide) {
      chunk.weight.copy_(stored);
      update(chunk);
      round_stochastically(stored, chunk.weight,
                           {.key = rounding_key,
                            .first_element = static_cast<uint64_t>(parameter.first_value + first)});
    } else {
      update(chunk);
    }
  }
}

void update_in_lists(const std::vector<const ParameterTensors*>& parameters, double factor,
                     const std::function<void(std::span<const ListedChunk>)>& update) {
  const ChunkLists lists(parameters, factor);
  at::parallel_for(0, lists.units(), kListedValues / kUnit / 4, [&](int64_t begin, int64_t end) {
    // A thread of the pool begins with autograd's dispatch.
    const c10::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    lists.visit(begin, end, update);
  });
}

}  // namespace finetune
