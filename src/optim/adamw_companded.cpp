// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "finetune/kernels/quantized_state.h"
#include "optim/adamw_update.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

// AdamW with FlashOptim's companded moments, of every parameter.
class CompandedAdamW final : public Optimizer {
 public:
  CompandedAdamW(ParameterStore& parameters, const std::vector<bool>& decays,
                 const OptimizerOptions& options)
      : Optimizer(parameters, decays, options) {
    for (Slot& slot : slots()) slot.is_8bit = true;
  }

  void create_state(Slot& slot) const override {
    const Tensor& weight = parameter_of(slot).weight;
    const auto wide = weight.options().dtype(at::kFloat).requires_grad(false);
    const int64_t groups = (weight.numel() + kCompandedGroup - 1) / kCompandedGroup;
    slot.state = {{"exp_avg_q", at::zeros(weight.sizes(), wide.dtype(at::kChar))},
                  {"exp_avg_scale", at::zeros({groups}, wide)},
                  {"exp_avg_sq_q", at::zeros(weight.sizes(), wide.dtype(at::kByte))},
                  {"exp_avg_sq_scale", at::zeros({groups}, wide)}};
  }

 private:
  static CompandedState companded(const Slot& slot) {
    return {slot.at("exp_avg_q"), slot.at("exp_avg_scale"), slot.at("exp_avg_sq_q"),
            slot.at("exp_avg_sq_scale")};
  }

  void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) override {
    update_adamw(parameter_of(slot), companded(slot),
                 make_update(options(), learning_rate, weight_decay_of(slot), slot.updates, factor,
                             rounding_key(slot, update)));
  }

  [[nodiscard]] Moments read_moments(const Slot& slot) const override {
    const Tensor& codes = slot.at("exp_avg_q");
    const auto wide = codes.options().dtype(at::kFloat);
    Moments moments{at::empty(codes.sizes(), wide), at::empty(codes.sizes(), wide)};
    decode(companded(slot), moments.exp_avg, moments.exp_avg_sq);
    return moments;
  }

  void write_moments(Slot& slot, const Moments& moments) const override {
    encode(moments.exp_avg.contiguous(), moments.exp_avg_sq.contiguous(), companded(slot));
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_companded(ParameterStore& parameters,
                                                const std::vector<bool>& decays,
                                                const OptimizerOptions& options) {
  return std::make_unique<CompandedAdamW>(parameters, decays, options);
}

}  // namespace finetune
