// SPDX-License-Identifier: MIT
#include "finetune/params/format.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/kernels/format_lists.h"
#include "finetune/kernels/formats.h"
#include "finetune/kernels/mxfp4.h"
#include "finetune/kernels/nf4.h"

namespace finetune {
namespace {

constexpr int64_t kAssignedAtOnce = int64_t{1} << 20;  // values

Tensor empty(c10::IntArrayRef sizes, c10::Device device, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(device).dtype(type));
}

Tensor look_up(const Tensor& table, const Tensor& indices) {
  return at::embedding(table.detach(), indices);
}

// --- float32, as it is ---

Tensor rows_of_float(const ParameterTensors& stored, c10::IntArrayRef /*sizes*/, int64_t first,
                     int64_t count) {
  return stored.weight.detach().narrow(0, first, count);
}

Tensor gather_float(const ParameterTensors& stored, const Tensor& indices) {
  return look_up(stored.weight, indices);
}

// --- one tensor of another type ---

template <at::ScalarType kType>
ParameterTensors allocate_one(c10::IntArrayRef sizes, c10::Device device) {
  return {.weight = empty(sizes, device, kType)};
}

void assign_one(const ParameterTensors& stored, const Tensor& values) {
  stored.weight.detach().copy_(values);
}

Tensor rows_of_one(const ParameterTensors& stored, c10::IntArrayRef /*sizes*/, int64_t first,
                   int64_t count) {
  return stored.weight.detach().narrow(0, first, count).to(at::kFloat);
}

Tensor gather_one(const ParameterTensors& stored, const Tensor& indices) {
  return look_up(stored.weight, indices).to(at::kFloat);
}

// --- bfloat16 with corrections ---

ParameterTensors allocate_split(c10::IntArrayRef sizes, c10::Device device) {
  return {.weight = empty(sizes, device, at::kBFloat16),
          .correction = empty(sizes, device, at::kChar)};
}

void assign_split(const ParameterTensors& stored, const Tensor& values) {
  const Tensor from = values.detach().contiguous().flatten();
  const Tensor weight = stored.weight.detach().flatten();
  const Tensor correction = stored.correction.flatten();
  for (int64_t first = 0; first < from.numel(); first += kAssignedAtOnce) {
    const int64_t count = std::min(kAssignedAtOnce, from.numel() - first);
    const Tensor exact = from.narrow(0, first, count).to(weight.device(), at::kFloat);
    split_values(exact, weight.narrow(0, first, count), correction.narrow(0, first, count));
  }
}

Tensor rows_of_split(const ParameterTensors& stored, c10::IntArrayRef /*sizes*/, int64_t first,
                     int64_t count) {
  const Tensor rows = stored.weight.detach().narrow(0, first, count);
  const Tensor values = at::empty_like(rows, rows.options().dtype(at::kFloat));
  join_values(rows, stored.correction.narrow(0, first, count), values);
  return values;
}

Tensor gather_split(const ParameterTensors& stored, const Tensor& indices) {
  return kernels::joined_rows(stored.weight.detach(), stored.correction, indices);
}

// --- NF4 ---

int64_t count_of(c10::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

ParameterTensors allocate_nf4(c10::IntArrayRef sizes, c10::Device device) {
  const int64_t count = count_of(sizes);
  return {.weight = empty({kernels::nf4_code_bytes(count)}, device, at::kByte),
          .scales = empty({kernels::nf4_blocks(count)}, device, at::kFloat)};
}

// On the CPU, some blocks at a time.
template <bool kIsNested>
void assign_nf4(const ParameterTensors& stored, const Tensor& values) {
  if (stored.weight.is_meta()) return;
  const Tensor from = values.detach().flatten();
  const Tensor codes = at::empty(stored.weight.sizes(), at::kByte);
  const Tensor scales = at::empty(stored.scales.sizes(), at::kFloat);
  static_assert(kAssignedAtOnce % kernels::kNf4Block == 0, "whole blocks");
  for (int64_t first = 0; first < from.numel(); first += kAssignedAtOnce) {
    const int64_t count = std::min(kAssignedAtOnce, from.numel() - first);
    kernels::quantize_nf4(from.narrow(0, first, count).to(at::kCPU, at::kFloat).contiguous(),
                          codes.narrow(0, first / 2, kernels::nf4_code_bytes(count)),
                          scales.narrow(0, first / kernels::kNf4Block, kernels::nf4_blocks(count)));
  }
  stored.weight.copy_(codes);
  stored.scales.copy_(kIsNested ? kernels::quantize_nf4_scales(scales).unpack() : scales);
}

Tensor unpack_nf4(const ParameterTensors& stored, c10::IntArrayRef sizes, at::ScalarType type) {
  return kernels::dequantize_nf4(stored.weight, stored.scales, 0, count_of(sizes), type)
      .view(sizes);
}

Tensor rows_of_nf4(const ParameterTensors& stored, c10::IntArrayRef sizes, int64_t first,
                   int64_t count) {
  std::vector<int64_t> shape = sizes.vec();
  const int64_t row = count_of(sizes.slice(1));
  shape[0] = count;
  return kernels::dequantize_nf4(stored.weight, stored.scales, first * row, count * row, at::kFloat)
      .view(shape);
}

Tensor gather_none(const ParameterTensors& /*stored*/, const Tensor& /*indices*/) {
  FT_CHECK(false, "embeddings keep 16 bits");
}

// --- MXFP4 ---

ParameterTensors allocate_mxfp4(c10::IntArrayRef sizes, c10::Device device) {
  FT_CHECK(sizes.size() == 3 && sizes[1] % kMxfp4Block == 0, "rows are whole blocks");
  const int64_t count = count_of(sizes);
  return {.weight = empty({count / 2}, device, at::kByte),
          .scales = empty({count / kMxfp4Block}, device, at::kByte)};
}

void assign_mxfp4(const ParameterTensors& stored, const Tensor& /*values*/) {
  FT_CHECK(stored.weight.is_meta(), "values in MXFP4 come from files of it");
}

Tensor matrices_of_mxfp4(const ParameterTensors& stored, c10::IntArrayRef sizes, int64_t first,
                         int64_t count, at::ScalarType type) {
  const int64_t matrix = sizes[1] * sizes[2];
  return kernels::dequantize_mxfp4(stored.weight, stored.scales, first * matrix, count * matrix,
                                   type)
      .view({count, sizes[2], sizes[1]})
      .transpose(1, 2);
}

Tensor unpack_mxfp4(const ParameterTensors& stored, c10::IntArrayRef sizes, at::ScalarType type) {
  return matrices_of_mxfp4(stored, sizes, 0, sizes[0], type);
}

Tensor rows_of_mxfp4(const ParameterTensors& stored, c10::IntArrayRef sizes, int64_t first,
                     int64_t count) {
  return matrices_of_mxfp4(stored, sizes, first, count, at::kFloat);
}

// By WeightFormat.
constexpr WeightFormatTraits kFormats[] = {
    {.name = "float32",
     .description = "float32",
     .bytes = 4,
     .type = at::kFloat,
     .has_correction = false,
     .allocate = allocate_one<at::kFloat>,
     .assign = assign_one,
     .rows = rows_of_float,
     .gather = gather_float},
    {.name = "bfloat16",
     .description = "bfloat16",
     .bytes = 2,
     .type = at::kBFloat16,
     .has_correction = false,
     .allocate = allocate_one<at::kBFloat16>,
     .assign = assign_one,
     .rows = rows_of_one,
     .gather = gather_one},
    {.name = "bfloat16+int8",
     .description = "split (bfloat16 and int8)",
     .bytes = 3,
     .type = at::kBFloat16,
     .has_correction = true,
     .allocate = allocate_split,
     .assign = assign_split,
     .rows = rows_of_split,
     .gather = gather_split},
    {.name = "float16",
     .description = "float16",
     .bytes = 2,
     .type = at::kHalf,
     .has_correction = false,
     .allocate = allocate_one<at::kHalf>,
     .assign = assign_one,
     .rows = rows_of_one,
     .gather = gather_one},
    {.name = "nf4",
     .description = "NF4 (4.5 bits)",
     .bytes = 0.5625,
     .type = at::kByte,
     .has_correction = false,
     .allocate = allocate_nf4,
     .assign = assign_nf4<false>,
     .rows = rows_of_nf4,
     .gather = gather_none,
     .unpack = unpack_nf4},
    {.name = "nf4 nested",
     .description = "NF4 with double quantization (4.5 bits here)",
     .bytes = 0.5625,
     .type = at::kByte,
     .has_correction = false,
     .allocate = allocate_nf4,
     .assign = assign_nf4<true>,
     .rows = rows_of_nf4,
     .gather = gather_none,
     .unpack = unpack_nf4},
    {.name = "mxfp4",
     .description = "MXFP4 (4.25 bits)",
     .bytes = 0.53125,
     .type = at::kByte,
     .has_correction = false,
     .allocate = allocate_mxfp4,
     .assign = assign_mxfp4,
     .rows = rows_of_mxfp4,
     .gather = gather_none,
     .unpack = unpack_mxfp4},
};

}  // namespace

const WeightFormatTraits& traits_of(WeightFormat format) {
  return kFormats[static_cast<size_t>(format)];
}

int64_t bytes_of(GradientFormat format) { return format == GradientFormat::kFloat32 ? 4 : 2; }

const char* name_of(GradientFormat format) {
  return format == GradientFormat::kFloat32 ? "float32" : "bfloat16";
}

at::ScalarType type_of(GradientFormat format) {
  return format == GradientFormat::kFloat32 ? at::kFloat : at::kBFloat16;
}

}  // namespace finetune
