// SPDX-License-Identifier: MIT
#include "export/nf4_tensors.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "finetune/kernels/nf4.h"
#include "finetune/kernels/quantized_state.h"
#include "finetune/params/format.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

struct Quantized {
  ParameterTensors stored;
  kernels::NestedNf4Scales nested;
};

constexpr int64_t kAtOnce = int64_t{1} << 20;  // values: they stay in a core's cache

// The fewest rows of `columns` values that are whole blocks.
int64_t rows_of_whole_blocks(int64_t columns) {
  return kernels::kNf4Block / std::gcd(columns, kernels::kNf4Block);
}

Quantized quantized(const MergedTensor& source, at::ScalarType type, bool nested) {
  const int64_t rows = source.shape.front();
  const int64_t columns = source.shape.back();
  Quantized result{.stored = traits_of(WeightFormat::kNf4).allocate(source.shape, at::kCPU),
                   .nested = {}};
  const int64_t whole = rows_of_whole_blocks(columns);
  const int64_t step = std::max<int64_t>(1, kAtOnce / (columns * whole)) * whole;
  for (int64_t row = 0; row < rows; row += step) {
    const Tensor values = source.rows(row, std::min(step, rows - row)).to(type);
    const int64_t first = row * columns;
    refuse_nonfinite(source.name, values, first);
    const int64_t count = values.numel();
    kernels::quantize_nf4(
        values.to(at::kFloat).contiguous(),
        result.stored.weight.narrow(0, first / 2, kernels::nf4_code_bytes(count)),
        result.stored.scales.narrow(0, first / kernels::kNf4Block, kernels::nf4_blocks(count)));
  }
  if (nested) result.nested = kernels::quantize_nf4_scales(result.stored.scales);
  return result;
}

Tensor bytes_of_text(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {static_cast<int64_t>(text.size())},
                       at::kByte)
      .clone();
}

}  // namespace

struct Nf4Tensors::Last {
  std::string name;
  Quantized matrix;
};

Nf4Tensors::Nf4Tensors(bool nested) : nested_(nested), last_(std::make_shared<Last>()) {}

void Nf4Tensors::add(const MergedTensor& matrix, at::ScalarType type, const std::string& type_name,
                     LazyTensors& tensors) const {
  const auto values = [matrix, type, nested = nested_, last = last_]() -> const Quantized& {
    if (last->name != matrix.name) *last = {matrix.name, quantized(matrix, type, nested)};
    return last->matrix;
  };
  const auto part = [&](const std::string& end, at::ScalarType kind, std::vector<int64_t> shape,
                        Tensor (*get)(const Quantized&)) {
    tensors.push_back({.name = matrix.name + end,
                       .type = kind,
                       .shape = std::move(shape),
                       .rows = [values, get](int64_t first, int64_t count) {
                         return get(values()).narrow(0, first, count);
                       }});
  };
  const int64_t count = c10::multiply_integers(matrix.shape);
  const int64_t blocks = kernels::nf4_blocks(count);
  Json state = {{"quant_type", "nf4"},
                {"blocksize", kernels::kNf4Block},
                {"dtype", type_name},
                {"shape", matrix.shape}};
  part("", at::kByte, {kernels::nf4_code_bytes(count), 1},
       [](const Quantized& one) { return one.stored.weight.unsqueeze(1); });
  if (nested_) {
    part(".absmax", at::kByte, {blocks}, [](const Quantized& one) { return one.nested.codes; });
    part(".nested_absmax", at::kFloat,
         {(blocks + kernels::kNf4ScaleBlock - 1) / kernels::kNf4ScaleBlock},
         [](const Quantized& one) { return one.nested.absmax; });
    tensors.push_back(lazy_tensor(matrix.name + ".nested_quant_map", dynamic_map(true)));
    state["nested_blocksize"] = kernels::kNf4ScaleBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(values().nested.offset);
  } else {
    part(".absmax", at::kFloat, {blocks}, [](const Quantized& one) { return one.stored.scales; });
  }
  tensors.push_back(
      lazy_tensor(matrix.name + ".quant_map", at::tensor(at::ArrayRef<float>(kernels::nf4_map()))));
  tensors.push_back(
      lazy_tensor(matrix.name + ".quant_state.bitsandbytes__nf4", bytes_of_text(state.dump())));
}

Json nf4_quantization_config(const std::string& type, bool nested,
                             const std::vector<std::string>& whole) {
  return {{"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_compute_dtype", type},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", nested},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", whole},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"quant_method", "bitsandbytes"}};
}

}  // namespace finetune
