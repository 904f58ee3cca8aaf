// SPDX-License-Identifier: MIT
// Attention without rows of scores in memory. In 16 bits on GPUs from compute capability 8.0 on:
// the tiles of tiled_attention.h, which have masks and a dropout that is a function of the element,
// or for long and causal rows without these torch's FlashAttention-2; elsewhere torch's
// memory-efficient kernel (Rabe and Staats 2021). The row kernel (attention_core.cpp) has what is
// left: dropout in float32 or on older GPUs, soft-capping. Sinks are in the tiles alone.
#include "kernels/interface/flash_attention.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>

#include <cstdlib>
#include <string_view>
#include <tuple>

#include "finetune/kernels/dry_device.h"
#include "finetune/tensor/gpu.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/runner.h"
#include "kernels/cuda/tiled_attention.h"

namespace finetune::kernels::cuda {
namespace {

enum class Operator { kNone, kTiled, kFlash, kEfficient };

// Rows of up to this many tokens, without a causal rule, are as fast by the row kernel as by
// torch's.
constexpr int64_t kShortRows = 512;

// FINETUNE_FLASH_ATTENTION=0 leaves everything to the row kernel, =efficient all that it can do to
// the memory-efficient one; =unordered lets the GPU choose the order of sums in the backward pass,
// to measure what a fixed one costs; =tiled prefers the tiles to torch's flash attention.
std::string_view wish() {
  static const char* const text = std::getenv("FINETUNE_FLASH_ATTENTION");
  return text == nullptr ? "" : text;
}

// Flash attention's heads of up to this size, by the GPU's architecture; 0: none.
int64_t largest_flash_head(const GpuProperties& gpu) {
  if (gpu.major < 8 || wish() == "efficient") return 0;
  // The backward pass of larger heads needs more shared memory than the others have.
  const bool has_room = gpu.major < 12 && gpu.minor == 0;
  return has_room ? 256 : 192;
}

bool is_there(c10::Device device) {
  static const auto flash =
      c10::Dispatcher::singleton().findSchema({"aten::_flash_attention_forward", ""});
  static const auto efficient =
      c10::Dispatcher::singleton().findSchema({"aten::_efficient_attention_forward", ""});
  const c10::DispatchKey key = at::TensorOptions(device).computeDispatchKey();
  return flash && flash->hasComputedKernelForDispatchKey(key) && efficient &&
         efficient->hasComputedKernelForDispatchKey(key);
}

// Torch's, where it gains and nothing that it lacks is asked for. Requires: they are there.
Operator operator_of_torch(const Attention& inputs, const GpuProperties& gpu) {
  const at::ScalarType type = inputs.query.scalar_type();
  const bool gains = inputs.rule.causal || inputs.longest() > kShortRows;
  const bool fits = !inputs.dropout && inputs.rule.softcap == 0.0 && !inputs.mask.defined() &&
                    inputs.has_one_type() &&
                    (inputs.layout == nullptr || inputs.layout->starts32.defined());
  if (!gains || !fits) return Operator::kNone;
  const int64_t size = inputs.head_size();
  const bool is_narrow = type == at::kBFloat16 || type == at::kHalf;
  if (is_narrow && size % 8 == 0 && size <= largest_flash_head(gpu)) return Operator::kFlash;
  // Its bfloat16 needs compute capability 8.0.
  const bool has_type = type == at::kFloat || type == at::kHalf || gpu.major >= 8;
  const bool is_aligned = size * static_cast<int64_t>(inputs.query.element_size()) % 16 == 0;
  const bool is_efficient = has_type && is_aligned && size <= 256 && inputs.rule.window == 0;
  return is_efficient ? Operator::kEfficient : Operator::kNone;
}

// Tiles need compute capability 8.0, which fibers that pretend to be a GPU have.
bool has_tensor_cores(const std::optional<GpuProperties>& gpu) {
  return gpu ? gpu->major >= 8 : preloaded_runner() != nullptr;
}

// What a device computes attention with.
struct Ability {
  bool tiles = false;
  std::optional<GpuProperties> torch = {};  // of the GPU that torch's operators run on
};

Ability ability_of(c10::Device device) {
  if (device.is_meta()) {
    const DryDevice& dry = dry_device();
    return {.tiles = dry.has_tiles,
            .torch = dry.has_flash ? std::optional(GpuProperties{.major = 8}) : std::nullopt};
  }
  static const std::optional<GpuProperties> gpu = gpu_properties(device);
  return {.tiles = has_tensor_cores(gpu), .torch = gpu && is_there(device) ? gpu : std::nullopt};
}

Operator operator_of(const Attention& inputs) {
  if (wish() == "0") return Operator::kNone;
  const Ability ability = ability_of(inputs.query.device());
  const bool has_own = wish() != "efficient" && ability.tiles && has_tiles(inputs);
  if (has_own && wish() == "tiled") return Operator::kTiled;
  const Operator of_torch = ability.torch && !inputs.sinks.defined()
                                ? operator_of_torch(inputs, *ability.torch)
                                : Operator::kNone;
  return of_torch == Operator::kNone && has_own ? Operator::kTiled : of_torch;
}

Tensor starts_of(const Attention& inputs) {
  return inputs.layout == nullptr ? Tensor() : inputs.layout->starts32;
}

std::optional<Tensor> if_defined(const Tensor& x) {
  return x.defined() ? std::optional<Tensor>(x) : std::nullopt;
}

// [B, T, H, D]
Tensor by_head(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads});
}

// A token sees `left` tokens before it and `right` after it.
struct Window {
  std::optional<int64_t> left, right;

  explicit Window(const AttentionRule& rule) {
    if (rule.window == 0) return;
    left = rule.window - 1;
    right = rule.causal ? 0 : rule.window - 1;
  }
};

// Both backward passes add in a fixed order only while this is set.
class DeterministicOperators {
 public:
  DeterministicOperators()
      : was_set_(at::globalContext().deterministicAlgorithms()),
        warned_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        filled_(at::globalContext().deterministicFillUninitializedMemory()) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  DeterministicOperators(const DeterministicOperators&) = delete;
  DeterministicOperators& operator=(const DeterministicOperators&) = delete;
  ~DeterministicOperators() {
    at::globalContext().setDeterministicAlgorithms(was_set_, warned_);
    at::globalContext().setDeterministicFillUninitializedMemory(filled_);
  }

 private:
  bool was_set_;
  bool warned_;
  bool filled_;
};

// Flash attention takes the tokens of a layout as [N, H, D].
Tensor for_flash(const Tensor& x, int64_t heads, const Attention& inputs) {
  const Tensor all = by_head(x, heads);
  return inputs.layout == nullptr ? all : all.squeeze(0);
}

Attended flash_forward(const Attention& inputs) {
  const Tensor starts = starts_of(inputs);
  const Window window(inputs.rule);
  const int64_t longest = inputs.longest();
  const auto result = at::_flash_attention_forward(
      for_flash(inputs.query, inputs.heads, inputs),
      for_flash(inputs.key, inputs.key_heads(), inputs),
      for_flash(inputs.value, inputs.key_heads(), inputs), if_defined(starts), if_defined(starts),
      longest, longest, /*dropout_p=*/0.0, inputs.rule.causal, /*return_debug_mask=*/false,
      inputs.scale(), window.left, window.right);
  return {.context = std::get<0>(result), .log_sum_exp = std::get<1>(result)};
}

AttendedGradients flash_backward(const Attention& inputs, const Attended& forward,
                                 const Tensor& gradient) {
  const Tensor starts = starts_of(inputs);
  const Window window(inputs.rule);
  const int64_t longest = inputs.longest();
  // Dropout's random state, which is not read without dropout.
  const Tensor none = at::empty({0}, gradient.options().dtype(at::kLong));
  const auto [query, key, value] = at::_flash_attention_backward(
      for_flash(gradient, inputs.heads, inputs), for_flash(inputs.query, inputs.heads, inputs),
      for_flash(inputs.key, inputs.key_heads(), inputs),
      for_flash(inputs.value, inputs.key_heads(), inputs),
      for_flash(forward.context, inputs.heads, inputs), forward.log_sum_exp, starts, starts,
      longest, longest, /*dropout_p=*/0.0, inputs.rule.causal, none, none, inputs.scale(),
      window.left, window.right);
  return {.query = query, .key = key, .value = value};
}

// The operators on the meta device, which lacks them: the backward pass adds the gradient of
// queries in float32, by parts that keep its order.
Attended dry_forward(const Attention& inputs) {
  const Tensor& query = inputs.query;
  return {.context = at::empty_like(query),
          .log_sum_exp = at::empty({query.size(0), inputs.heads, query.size(1)},
                                   query.options().dtype(at::kFloat))};
}

AttendedGradients dry_backward(const Attention& inputs) {
  constexpr int64_t kMultiprocessors = 132;  // of an H100; others have fewer
  const int64_t heads = inputs.query.size(0) * inputs.heads;
  const int64_t parts = (kMultiprocessors + heads - 1) / heads;
  const Tensor sums =
      at::empty({parts, inputs.query.numel()}, inputs.query.options().dtype(at::kFloat));
  return {.query = at::empty_like(inputs.query),
          .key = at::empty_like(inputs.key),
          .value = at::empty_like(inputs.value)};
}

constexpr int64_t kNoRule = 0;  // torch's CustomMaskType
constexpr int64_t kCausalRule = 1;

int64_t rule_of(const Attention& inputs) { return inputs.rule.causal ? kCausalRule : kNoRule; }

// The efficient kernel has as many key heads as query heads.
Tensor for_each_query_head(const Tensor& x, const Attention& inputs) {
  const Tensor all = by_head(x, inputs.key_heads());
  const int64_t group = inputs.heads / inputs.key_heads();
  if (group == 1) return all;
  return all.unsqueeze(3).expand({-1, -1, -1, group, -1}).flatten(2, 3);
}

// The sum over query heads that share a key head.
Tensor of_key_heads(const Tensor& x, const Attention& inputs) {
  const int64_t group = inputs.heads / inputs.key_heads();
  return group == 1 ? x : x.unflatten(2, {-1, group}).sum(3);
}

Attended efficient_forward(const Attention& inputs) {
  const Tensor starts = starts_of(inputs);
  const int64_t longest = inputs.longest();
  const auto result = at::_efficient_attention_forward(
      by_head(inputs.query, inputs.heads), for_each_query_head(inputs.key, inputs),
      for_each_query_head(inputs.value, inputs), /*bias=*/std::nullopt, if_defined(starts),
      if_defined(starts), longest, longest, /*dropout_p=*/0.0, rule_of(inputs),
      /*compute_log_sumexp=*/true, inputs.scale());
  return {.context = std::get<0>(result), .log_sum_exp = std::get<1>(result)};
}

AttendedGradients efficient_backward(const Attention& inputs, const Attended& forward,
                                     const Tensor& gradient) {
  const Tensor starts = starts_of(inputs);
  const int64_t longest = inputs.longest();
  const Tensor none = at::empty({}, at::TensorOptions().dtype(at::kLong));
  const auto result = at::_efficient_attention_backward(
      by_head(gradient, inputs.heads), by_head(inputs.query, inputs.heads),
      for_each_query_head(inputs.key, inputs), for_each_query_head(inputs.value, inputs),
      /*bias=*/std::nullopt, by_head(forward.context, inputs.heads), if_defined(starts),
      if_defined(starts), longest, longest, forward.log_sum_exp, /*dropout_p=*/0.0, none, none,
      rule_of(inputs), /*bias_requires_grad=*/false, inputs.scale(), /*num_splits_key=*/1);
  return {.query = std::get<0>(result),
          .key = of_key_heads(std::get<1>(result), inputs),
          .value = of_key_heads(std::get<2>(result), inputs)};
}

const char* name() {
  if (wish() == "0") return "row";
  if (wish() == "efficient") return "efficient";
  if (wish() == "tiled") return "tiled";
  return wish() == "unordered" ? "unordered flash" : "tiled and flash";
}

bool has_own_tiles(c10::Device device) {
  return wish() != "0" && wish() != "efficient" && has_tensor_cores(gpu_properties(device));
}

bool serves(const Attention& inputs) { return operator_of(inputs) != Operator::kNone; }

Attended forward_of(const Attention& inputs) {
  const Operator kernel = operator_of(inputs);
  if (kernel == Operator::kTiled) return tiled_attention(inputs);
  if (inputs.query.is_meta()) return dry_forward(inputs);
  Attended result = kernel == Operator::kFlash ? flash_forward(inputs) : efficient_forward(inputs);
  result.context = result.context.reshape(inputs.query.sizes());
  return result;
}

AttendedGradients backward_of(const Attention& inputs, const Attended& forward,
                              const Tensor& gradient) {
  const Operator kernel = operator_of(inputs);
  if (kernel == Operator::kTiled) return tiled_attention_backward(inputs, forward, gradient);
  if (inputs.query.is_meta()) return dry_backward(inputs);
  // A view would hold its base, and a gradient of which there is a second reference is copied.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::optional<DeterministicOperators> guard;
  if (wish() != "unordered") guard.emplace();
  const AttendedGradients made = kernel == Operator::kFlash
                                     ? flash_backward(inputs, forward, gradient)
                                     : efficient_backward(inputs, forward, gradient);
  return {.query = made.query.reshape(inputs.query.sizes()),
          .key = made.key.reshape(inputs.key.sizes()),
          .value = made.value.reshape(inputs.value.sizes())};
}

}  // namespace

const FlashAttention kFlashAttention = {.name = name,
                                        .is_there = is_there,
                                        .has_tiles = has_own_tiles,
                                        .serves = serves,
                                        .forward = forward_of,
                                        .backward = backward_of};

}  // namespace finetune::kernels::cuda
