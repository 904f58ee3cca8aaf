// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/TensorOperators.h>

#include <type_traits>

#include "finetune/kernels/delta_rule.h"
#include "finetune/kernels/format_lists.h"
#include "finetune/kernels/formats.h"
#include "finetune/kernels/layer_operations.h"
#include "finetune/kernels/mxfp4.h"
#include "finetune/kernels/nf4.h"
#include "finetune/kernels/partial_sums.h"
#include "finetune/kernels/precision.h"
#include "finetune/kernels/quantized_state.h"
#include "finetune/kernels/softmax_cross_entropy.h"
#include "finetune/kernels/sum_of_squares.h"
#include "finetune/kernels/token_product.h"
#include "finetune/tensor/tensor.h"
#include "kernels/interface/adamw_numbers.h"
#include "kernels/interface/adamw_steps.h"
#include "kernels/interface/add_norm.h"
#include "kernels/interface/attention_core.h"
#include "kernels/interface/bias_gelu.h"
#include "kernels/interface/dropout_numbers.h"
#include "kernels/interface/flash_attention.h"

// The operations that devices implement, as one table per device: cpu/ has vectorised loops, plain/
// ATen operators (for every device and type, and the reference of the tests), cuda/ kernels
// compiled at run time. Callers use the functions of each operation's header, which check their
// arguments and call the table. Only kernels.cpp asks which device a tensor is on.
namespace finetune::kernels {

// The products of layer_operations.h of the same names, by a device's own kernels.
struct AdapterProducts {
  bool (&serves)(const Tensor& x, const Tensor& a);
  decltype(fused_adapter_products)& products;
  decltype(fused_adapter_backward)& backward;
};

// Entries are references, so a table with a missing entry does not compile. A device without a
// kernel for an operation uses plain's.
//
// Each entry has the contract of the function of its name and may rely on that function's checks:
// contiguous tensors on one device, of float32, bfloat16 or float16 (plain: float64 too). Kernels
// of an accelerator are launched on the current stream of the tensors' device, and the host waits
// only where a function returns a number. Scratch memory comes from ATen's allocator and is
// returned to it before the function returns.
struct Kernels {
  const char* name;

  // add_norm.h
  decltype(kernels::add_norm)& add_norm;
  decltype(kernels::norm)& norm;
  decltype(kernels::add_norm_backward)& add_norm_backward;

  // attention_core.h
  decltype(kernels::attention)& attention;
  decltype(kernels::attention_backward)& attention_backward;
  decltype(kernels::block_attention)& block_attention;
  decltype(kernels::block_attention_backward)& block_attention_backward;

  // bias_gelu.h
  decltype(kernels::bias_activation)& bias_activation;
  decltype(kernels::bias_activation_backward)& bias_activation_backward;

  // Returns x times its dropout mask (dropout_mask.h). x may be strided.
  Tensor (&dropout)(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout);

  // The functions of layer_operations.h.
  decltype(kernels::fused_rms_norm)& rms_norm;
  decltype(kernels::fused_add_rms_norm)& add_rms_norm;
  decltype(kernels::fused_rms_norm_backward)& rms_norm_backward;
  decltype(kernels::fused_gated_product)& gated_product;
  decltype(kernels::fused_gated_product_backward)& gated_product_backward;
  decltype(kernels::fused_xielu)& xielu;
  decltype(kernels::fused_xielu_backward)& xielu_backward;
  decltype(kernels::fused_rotation)& rotate_heads;

  // The functions of delta_rule.h.
  decltype(kernels::fused_delta_rule)& delta_rule;
  decltype(kernels::fused_delta_rule_backward)& delta_rule_backward;
  decltype(kernels::fused_short_convolution)& short_convolution;
  decltype(kernels::fused_short_convolution_backward)& short_convolution_backward;

  // softmax_cross_entropy.h
  decltype(kernels::softmax_cross_entropy_)& softmax_cross_entropy_;

  // token_product.h
  decltype(kernels::has_token_product)& has_token_product;
  decltype(kernels::token_product)& token_product;

  // finetune/kernels/partial_sums.h
  decltype(kernels::add_rows)& add_rows;
  decltype(kernels::sum_rows)& sum_rows;
  decltype(kernels::add_rows_stochastically)& add_rows_stochastically;
  decltype(kernels::sums_of_rows)& sums_of_rows;
  decltype(kernels::add_partial_sums)& add_partial_sums;

  // finetune/kernels/formats.h, format_lists.h
  decltype(finetune::round_stochastically)& round_stochastically;
  decltype(kernels::add_all_stochastically)& add_all_stochastically;
  decltype(finetune::split_values)& split_values;
  decltype(kernels::join_all_values)& join_all_values;
  decltype(kernels::joined_rows)& joined_rows;

  // finetune/kernels/mxfp4.h
  decltype(kernels::dequantize_mxfp4)& dequantize_mxfp4;
  // finetune/kernels/nf4.h
  decltype(kernels::dequantize_nf4)& dequantize_nf4;

  // finetune/kernels/sum_of_squares.h
  decltype(finetune::sum_of_squares)& sum_of_squares;
  decltype(finetune::sum_of_all_squares)& sum_of_all_squares;
  decltype(finetune::block_sums_of_squares)& block_sums_of_squares;
  decltype(finetune::mean)& mean;

  // update_adamw(), encode() and decode() of finetune/kernels/quantized_state.h
  void (&update_dynamic)(const ParameterTensors& parameter, const DynamicState& state,
                         const AdamWUpdate& update, const BitsAndBytesNumbers& numbers);
  void (&update_wide)(const ParameterTensors& parameter, const WideState& state,
                      const AdamWUpdate& update, const BitsAndBytesNumbers& numbers);
  void (&update_companded)(const ParameterTensors& parameter, const CompandedState& state,
                           const AdamWUpdate& update, const AdamWNumbers& numbers);
  // Does all of these updates in a few launches, with the arithmetic of each state. Returns false
  // without doing anything where the device gains nothing by it.
  bool (&update_together)(const std::vector<AdamWJob>& jobs);
  void (&encode_dynamic)(const Tensor& exp_avg, const Tensor& exp_avg_sq,
                         const DynamicState& state);
  void (&decode_dynamic)(const DynamicState& state, const Tensor& exp_avg,
                         const Tensor& exp_avg_sq);
  void (&encode_companded)(const Tensor& exp_avg, const Tensor& exp_avg_sq,
                           const CompandedState& state);
  void (&decode_companded)(const CompandedState& state, const Tensor& exp_avg,
                           const Tensor& exp_avg_sq);

  // Whether products of this type are faster than float32's (precision.h).
  bool (&has_fast_products)(Precision precision);
  // Number of values of a parameter that update_in_chunks() converts to float32 at a time. A
  // multiple of every vector width, so that ATen's kernels give the bits of the whole tensor.
  int64_t chunk_values;
  // Whether the host runs ahead of the device, so that every launch costs time and every value read
  // by the host makes it wait. Callers then launch one operation for many tensors and skip checks
  // of values.
  bool is_asynchronous;
  bool attends_fewer_queries = false;  // attention() takes Attention::queries
  // Null: the device has none.
  const FlashAttention* flash_attention = nullptr;
  const AdapterProducts* adapter_products = nullptr;
};

// add_rms_norm() as two operations: ATen's sum and a table's norm, so that the norm has the bits of
// that operation.
[[nodiscard]] inline SumAndNorm norm_of_sum(const Tensor& x, const Tensor& branch,
                                            const RmsNorm& norm, at::ScalarType type,
                                            decltype(fused_rms_norm)& rms_norm) {
  const Tensor sum = x + branch;
  return {.sum = sum, .normed = rms_norm(sum, norm, type)};
}

// The type of a table's entry, for the declarations of an implementation.
template <typename Entry>
using FunctionOf = std::remove_reference_t<Entry>;

// Returns the kernels of a device.
[[nodiscard]] const Kernels& kernels_for(c10::Device device);
// Returns the kernels of a tensor's device; plain's for types that they do not support (float64, in
// tests).
[[nodiscard]] const Kernels& kernels_for(const Tensor& x);

}  // namespace finetune::kernels
