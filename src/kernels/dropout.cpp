// SPDX-License-Identifier: MIT
#include "finetune/kernels/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "kernels/dropout_cpu.h"
#include "kernels/dropout_mask.h"
#include "kernels/philox_tensors.h"

namespace finetune {
namespace kernels {

DropoutNumbers make_dropout_numbers(double p, const DropoutStream& stream, int64_t layer,
                                    DropoutSite site) {
  const uint64_t key = random::make_key(stream.seed, random::Purpose::kDropout,
                                        static_cast<uint64_t>(stream.update));
  return {p,
          {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)},
          static_cast<uint32_t>(stream.first_place),
          static_cast<uint32_t>(layer) << 8 | static_cast<uint32_t>(site)};
}

std::optional<DropoutNumbers> make_dropout_numbers(double p,
                                                   const std::optional<DropoutStream>& stream,
                                                   int64_t layer, DropoutSite site) {
  if (!stream || p == 0.0) return std::nullopt;
  FT_CHECK(p > 0.0 && p < 1.0, "dropout probabilities lie in [0, 1)");
  return make_dropout_numbers(p, *stream, layer, site);
}

Tensor dropout_mask(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout) {
  const auto options = x.options().dtype(at::kLong);
  const int64_t columns = x.size(-1);
  const int64_t blocks = (columns + 3) / 4;
  const int64_t rows = x.size(-2);
  const int64_t heads = x.dim() == 4 ? x.size(1) : 1;

  const std::vector<int64_t> shape = {x.size(0), heads, rows, blocks};
  const Tensor places = layout == nullptr ? at::arange(rows, options) : layout->places;
  const Tensor samples = layout == nullptr
                             ? at::arange(x.size(0), options).view({x.size(0), 1, 1, 1})
                             : layout->sequences.view({1, 1, rows, 1});
  std::array<Tensor, 4> c = {
      at::arange(blocks, options).view({1, 1, 1, blocks}).expand(shape),
      (at::arange(heads, options).view({1, heads, 1, 1}) * 65536 + places.view({1, 1, rows, 1}))
          .expand(shape),
      (samples + static_cast<int64_t>(numbers.first_place)).expand(shape),
      at::empty_like(at::arange(1, options))
          .fill_(static_cast<int64_t>(numbers.layer_and_site))
          .view({1, 1, 1, 1})
          .expand(shape)};
  c = philox_by_tensor_operations(c, numbers.key[0] | uint64_t{numbers.key[1]} << 32);
  const Tensor words = at::stack({c[0], c[1], c[2], c[3]}, -1).flatten(-2).narrow(-1, 0, columns);
  const Tensor kept = words.ge(static_cast<int64_t>(numbers.threshold()));
  return (kept.to(x.scalar_type()) * static_cast<double>(numbers.scale())).view(x.sizes());
}

}  // namespace kernels

namespace {

using kernels::DropoutNumbers;

bool has_kernel(const Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

Tensor masked(const Tensor& input, const DropoutNumbers& numbers, const TokenLayout* layout) {
  if (!has_kernel(input)) return input * kernels::dropout_mask(input, numbers, layout);
  const Tensor x = input.contiguous();
  const Tensor output = at::empty_like(x);
  const int64_t columns = x.size(-1);
  const int64_t rows_per_head = x.size(-2);
  const int64_t rows_per_sample = x.dim() == 4 ? x.size(1) * rows_per_head : rows_per_head;
  const int64_t rows = x.size(0) * rows_per_sample;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    kernels::dropout_rows(
        {.input = x.const_data_ptr<float>(),
         .output = output.mutable_data_ptr<float>(),
         .first_row = begin,
         .last_row = end,
         .columns = columns,
         .rows_per_sample = rows_per_sample,
         .rows_per_head = layout == nullptr ? rows_per_head : 1 << 16,
         .sequences = layout == nullptr ? nullptr : layout->sequences.const_data_ptr<int64_t>(),
         .places = layout == nullptr ? nullptr : layout->places.const_data_ptr<int64_t>(),
         .key = numbers.key,
         .first_place = numbers.first_place,
         .layer_and_site = numbers.layer_and_site,
         .threshold = numbers.threshold(),
         .scale = numbers.scale()});
  });
  return output;
}

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double p,
                        int64_t key, int64_t first_place, int64_t layer_and_site,
                        const TokenLayout* layout) {
    if (layout != nullptr) {
      context->saved_data["sequences"] = layout->sequences;
      context->saved_data["places"] = layout->places;
    }
    context->saved_data["p"] = p;
    context->saved_data["key"] = key;
    context->saved_data["first_place"] = first_place;
    context->saved_data["layer_and_site"] = layer_and_site;
    return masked(x, unpack(p, key, first_place, layer_and_site), layout);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const DropoutNumbers numbers = unpack(
        context->saved_data["p"].toDouble(), context->saved_data["key"].toInt(),
        context->saved_data["first_place"].toInt(), context->saved_data["layer_and_site"].toInt());
    TokenLayout layout;
    const bool is_unpadded = context->saved_data.count("places") > 0;
    if (is_unpadded) {
      layout.sequences = context->saved_data["sequences"].toTensor();
      layout.places = context->saved_data["places"].toTensor();
    }
    return {masked(gradients[0], numbers, is_unpadded ? &layout : nullptr),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }

 private:
  static DropoutNumbers unpack(double p, int64_t key, int64_t first_place, int64_t layer_and_site) {
    const auto bits = static_cast<uint64_t>(key);
    return {p,
            {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
            static_cast<uint32_t>(first_place),
            static_cast<uint32_t>(layer_and_site)};
  }
};

void check_limits(const Tensor& x, double p, int64_t rows) {
  FT_CHECK(x.dim() == 3 || x.dim() == 4, "dropout takes [B, T, C] or [B, H, T, S]");
  FT_CHECK(p >= 0.0 && p < 1.0, "dropout probabilities lie in [0, 1)");
  FT_CHECK(rows <= 65536 && (x.dim() == 3 || x.size(1) <= 65536), "too many rows");
}

}  // namespace

Tensor dropout(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
               DropoutSite site, const TokenLayout* layout) {
  check_limits(x, p, layout == nullptr ? x.size(-2) : layout->longest);
  if (p == 0.0) return x;
  const DropoutNumbers numbers = kernels::make_dropout_numbers(p, stream, layer, site);
  const uint64_t key = numbers.key[0] | uint64_t{numbers.key[1]} << 32;
  return DropoutFunction::apply(x, p, static_cast<int64_t>(key),
                                static_cast<int64_t>(numbers.first_place),
                                static_cast<int64_t>(numbers.layer_and_site), layout);
}

Tensor dropout_mask_reference(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
                              DropoutSite site) {
  check_limits(x, p, x.size(-2));
  return kernels::dropout_mask(x, kernels::make_dropout_numbers(p, stream, layer, site));
}

}  // namespace finetune
