// SPDX-License-Identifier: MIT
#include "export/nf4_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/kernels/nf4.h"
#include "finetune/kernels/quantized_state.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// A matrix that is quantised when the first of its tensors is asked for; the values last until
// those of another are.
class Quantized {
 public:
  Quantized(MergedTensor source, at::ScalarType type, bool nested)
      : source_(std::move(source)), type_(type), nested_(nested) {}

  struct Values {
    Tensor codes, scales;
    kernels::NestedNf4Scales nested;
  };

  [[nodiscard]] const Values& values() const {
    // One for all matrices: they are written one after the other.
    thread_local const Quantized* owner = nullptr;
    thread_local Values values;
    if (owner == this && values.codes.defined()) return values;
    owner = this;
    const Tensor matrix =
        source_.rows(0, source_.shape.front()).to(type_).to(at::kFloat).contiguous();
    refuse_nonfinite(source_.name, matrix, 0);
    values = {.codes = at::empty({kernels::nf4_code_bytes(count())}, at::kByte),
              .scales = at::empty({kernels::nf4_blocks(count())}, at::kFloat),
              .nested = {}};
    kernels::quantize_nf4(matrix, values.codes, values.scales);
    if (nested_) values.nested = kernels::quantize_nf4_scales(values.scales);
    return values;
  }
  [[nodiscard]] int64_t count() const { return c10::multiply_integers(source_.shape); }
  [[nodiscard]] const std::vector<int64_t>& shape() const { return source_.shape; }
  [[nodiscard]] const std::string& name() const { return source_.name; }

 private:
  MergedTensor source_;
  at::ScalarType type_;
  bool nested_;
};

const char* type_text(at::ScalarType type) {
  return type == at::kHalf ? "float16" : type == at::kBFloat16 ? "bfloat16" : "float32";
}

LazyTensor constant(const std::string& name, const Tensor& values) {
  return lazy_tensor(name, values);
}

Tensor bytes_of_text(const std::string& text) {
  return at::from_blob(const_cast<char*>(text.data()), {static_cast<int64_t>(text.size())},
                       at::kByte)
      .clone();
}

}  // namespace

void add_nf4_tensors(const MergedTensor& tensor, at::ScalarType type, bool nested,
                     LazyTensors& tensors) {
  const auto matrix = std::make_shared<const Quantized>(tensor, type, nested);
  const auto part = [&](const std::string& end, at::ScalarType kind, std::vector<int64_t> shape,
                        Tensor (*get)(const Quantized::Values&)) {
    tensors.push_back({.name = tensor.name + end,
                       .type = kind,
                       .shape = std::move(shape),
                       .rows = [matrix, get](int64_t first, int64_t count) {
                         return get(matrix->values()).narrow(0, first, count);
                       }});
  };
  const int64_t blocks = kernels::nf4_blocks(matrix->count());
  Json state = {{"quant_type", "nf4"},
                {"blocksize", kernels::kNf4Block},
                {"dtype", type_text(type)},
                {"shape", matrix->shape()}};
  part("", at::kByte, {kernels::nf4_code_bytes(matrix->count()), 1},
       [](const Quantized::Values& values) { return values.codes.unsqueeze(1); });
  if (nested) {
    part(".absmax", at::kByte, {blocks},
         [](const Quantized::Values& values) { return values.nested.codes; });
    part(".nested_absmax", at::kFloat,
         {(blocks + kernels::kNf4ScaleBlock - 1) / kernels::kNf4ScaleBlock},
         [](const Quantized::Values& values) { return values.nested.absmax; });
    tensors.push_back(constant(tensor.name + ".nested_quant_map", dynamic_map(true)));
    state["nested_blocksize"] = kernels::kNf4ScaleBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(matrix->values().nested.offset);
  } else {
    part(".absmax", at::kFloat, {blocks},
         [](const Quantized::Values& values) { return values.scales; });
  }
  tensors.push_back(
      constant(tensor.name + ".quant_map", at::tensor(at::ArrayRef<float>(kernels::nf4_map()))));
  tensors.push_back(
      constant(tensor.name + ".quant_state.bitsandbytes__nf4", bytes_of_text(state.dump())));
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
