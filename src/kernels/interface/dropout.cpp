// SPDX-License-Identifier: MIT
#include "finetune/kernels/dropout.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "kernels/interface/dropout_mask.h"
#include "kernels/interface/kernels.h"

namespace finetune {
namespace kernels {

DropoutNumbers make_dropout_numbers(double p, const DropoutStream& stream, int64_t layer,
                                    DropoutSite site) {
  const uint64_t key = random::make_key(stream.seed, random::Purpose::kDropout,
                                        static_cast<uint64_t>(stream.update));
  return {p,
          {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)},
          static_cast<uint32_t>(stream.first_position),
          static_cast<uint32_t>(layer) << 8 | static_cast<uint32_t>(site)};
}

std::optional<DropoutNumbers> make_dropout_numbers(double p,
                                                   const std::optional<DropoutStream>& stream,
                                                   int64_t layer, DropoutSite site) {
  if (!stream || p == 0.0) return std::nullopt;
  FT_CHECK(p > 0.0 && p < 1.0, "dropout probability out of range [0, 1)");
  return make_dropout_numbers(p, *stream, layer, site);
}

}  // namespace kernels

namespace {

using kernels::DropoutNumbers;

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double p,
                        int64_t key, int64_t first_position, int64_t layer_and_site,
                        const TokenLayout* layout) {
    if (layout != nullptr) {
      context->saved_data["sequences"] = layout->sequences;
      context->saved_data["positions"] = layout->positions;
    }
    context->saved_data["p"] = p;
    context->saved_data["key"] = key;
    context->saved_data["first_position"] = first_position;
    context->saved_data["layer_and_site"] = layer_and_site;
    return kernels::kernels_for(x).dropout(x, unpack(p, key, first_position, layer_and_site),
                                           layout);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const DropoutNumbers numbers =
        unpack(context->saved_data["p"].toDouble(), context->saved_data["key"].toInt(),
               context->saved_data["first_position"].toInt(),
               context->saved_data["layer_and_site"].toInt());
    TokenLayout layout;
    const bool is_unpadded = context->saved_data.count("positions") > 0;
    if (is_unpadded) {
      layout.sequences = context->saved_data["sequences"].toTensor();
      layout.positions = context->saved_data["positions"].toTensor();
    }
    return {kernels::kernels_for(gradients[0])
                .dropout(gradients[0], numbers, is_unpadded ? &layout : nullptr),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }

 private:
  static DropoutNumbers unpack(double p, int64_t key, int64_t first_position,
                               int64_t layer_and_site) {
    const auto bits = static_cast<uint64_t>(key);
    return {p,
            {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)},
            static_cast<uint32_t>(first_position),
            static_cast<uint32_t>(layer_and_site)};
  }
};

void check_limits(const Tensor& x, double p, int64_t rows) {
  FT_CHECK(x.dim() == 3 || x.dim() == 4, "dropout takes [B, T, C] or [B, H, T, S]");
  FT_CHECK(p >= 0.0 && p < 1.0, "dropout probability out of range [0, 1)");
  FT_CHECK(rows <= 65536 && (x.dim() == 3 || x.size(1) <= 65536), "too many rows");
}

}  // namespace

Tensor dropout(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
               DropoutSite site, const TokenLayout* layout) {
  check_limits(x, p, layout == nullptr ? x.size(-2) : layout->longest);
  if (p == 0.0) return x;
  const DropoutNumbers numbers = kernels::make_dropout_numbers(p, stream, layer, site);
  if (!c10::GradMode::is_enabled() || !x.requires_grad()) {
    return kernels::kernels_for(x).dropout(x, numbers, layout);
  }
  const uint64_t key = numbers.key[0] | uint64_t{numbers.key[1]} << 32;
  return DropoutFunction::apply(x, p, static_cast<int64_t>(key),
                                static_cast<int64_t>(numbers.first_position),
                                static_cast<int64_t>(numbers.layer_and_site), layout);
}

Tensor dropout_mask_reference(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
                              DropoutSite site) {
  check_limits(x, p, x.size(-2));
  return kernels::dropout_mask(x, kernels::make_dropout_numbers(p, stream, layer, site));
}

}  // namespace finetune
