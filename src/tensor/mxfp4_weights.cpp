// SPDX-License-Identifier: MIT
#include "tensor/mxfp4_weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>

#include "finetune/base/error.h"
#include "finetune/base/mxfp4.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr int64_t kBytes = kMxfp4Block / 2;  // of a block

[[noreturn]] void fail(const Mxfp4Weights::Part& part, const std::string& why) {
  throw Error(ErrorKind::kData, format_text("'{}': tensor '{}' {}; fetch the folder again",
                                            part.file->path(), part.info.name, why));
}

void check_scales(const Tensor& scales, const Mxfp4Weights::Part& part) {
  if (scales.numel() == 0 || scales.max().item<uint8_t>() <= kLargestMxfp4Scale) return;
  fail(part, "has a scale of MXFP4 beyond what bfloat16 holds");
}

Tensor rows_of(const Mxfp4Weights::Part& part, int64_t first, int64_t count) {
  return part.file->read_rows(part.info, first, count).contiguous();
}

}  // namespace

void Mxfp4Weights::add(const std::string& name, const Part& blocks, const Part& scales) {
  const std::vector<int64_t>& shape = blocks.info.shape;
  if (blocks.info.dtype != DType::kU8 || shape.size() != 4 || shape[3] != kBytes) {
    fail(blocks,
         format_text("has the shape {} and type {}, but blocks of MXFP4 are U8 [E, out, "
                     "in / {}, {}]",
                     shape_text(shape), dtype_name(blocks.info.dtype), kMxfp4Block, kBytes));
  }
  const std::vector<int64_t> expected(shape.begin(), shape.begin() + 3);
  if (scales.info.dtype != DType::kU8 || scales.info.shape != expected) {
    fail(scales, format_text("has the shape {} and type {}, but scales of these blocks are U8 {}",
                             shape_text(scales.info.shape), dtype_name(scales.info.dtype),
                             shape_text(expected)));
  }
  TensorInfo info = {
      .name = name, .dtype = DType::kBF16, .shape = {shape[0], shape[2] * kMxfp4Block, shape[1]}};
  info.bytes = 4 * blocks.info.bytes;
  tensors_.push_back(std::move(info));
  stacks_[name] = {blocks, scales};
}

std::pair<Tensor, Tensor> Mxfp4Weights::read_codes(const std::string& name) const {
  const Stack& stack = stacks_.at(name);
  const Tensor scales = stack.scales.file->read(stack.scales.info).flatten();
  check_scales(scales, stack.scales);
  return {stack.blocks.file->read(stack.blocks.info).flatten(), scales};
}

const std::string& Mxfp4Weights::path() const {
  return stacks_.begin()->second.blocks.file->path();
}

Tensor Mxfp4Weights::read(const TensorInfo& info) const {
  return read_rows(info, 0, info.shape.front());
}

Tensor Mxfp4Weights::read_rows(const TensorInfo& info, int64_t first, int64_t count) const {
  const Stack& stack = stacks_.at(info.name);
  const Tensor blocks = rows_of(stack.blocks, first, count);
  const Tensor scales = rows_of(stack.scales, first, count);
  check_scales(scales, stack.scales);
  const Tensor values = at::empty({count, info.shape[2], info.shape[1]}, at::kBFloat16);
  const auto* codes = blocks.const_data_ptr<uint8_t>();
  const auto* powers = scales.const_data_ptr<uint8_t>();
  auto* const out = values.mutable_data_ptr<c10::BFloat16>();
  constexpr int64_t kGrain = 2048;  // blocks
  at::parallel_for(0, scales.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const float scale = mxfp4_scale(powers[block]);
      std::array<c10::BFloat16, 16> map;
      std::ranges::transform(kMxfp4Map, map.begin(), [&](float value) { return value * scale; });
      for (int64_t i = 0; i < kBytes; ++i) {
        const uint8_t byte = codes[block * kBytes + i];
        out[block * kMxfp4Block + 2 * i] = map[byte & 15];
        out[block * kMxfp4Block + 2 * i + 1] = map[byte >> 4];
      }
    }
  });
  return values.transpose(1, 2).contiguous();
}

void Mxfp4Weights::read_into(const TensorInfo& info, Tensor& target) const {
  check_fits(path(), info, target);
  target.copy_(read(info));
}

}  // namespace finetune
