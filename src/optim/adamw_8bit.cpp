// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "finetune/kernels/quantized_state.h"
#include "optim/adamw_update.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

// transformers' Trainer keeps every nn.Embedding at 32 bits; those of our models are named so.
bool is_embedding(const std::string& name) { return name.ends_with("_embeddings.weight"); }

// bitsandbytes' AdamW8bit as transformers' Trainer sets it up, with the names of its state_dict.
class AdamW8bit final : public Optimizer {
 public:
  AdamW8bit(ParameterStore& parameters, const std::vector<bool>& decays,
            const OptimizerOptions& options)
      : Optimizer(parameters, decays, options),
        map1_(dynamic_map(true)),
        map2_(dynamic_map(false)) {
    for (Slot& slot : slots()) {
      const Parameter& parameter = parameter_of(slot);
      slot.is_8bit = parameter.weight.numel() >= options.min_8bit_size &&
                     (options.embeddings_in_8bit || !is_embedding(parameter.name));
    }
  }

  void create_state(Slot& slot) const override {
    const Tensor& weight = parameter_of(slot).weight;
    const auto wide = weight.options().dtype(at::kFloat).requires_grad(false);
    if (!slot.is_8bit) {
      slot.state = {{"state1", at::zeros(weight.sizes(), wide)},
                    {"state2", at::zeros(weight.sizes(), wide)}};
      return;
    }
    const auto codes = wide.dtype(at::kByte);
    const int64_t blocks = (weight.numel() + kDynamicBlock - 1) / kDynamicBlock;
    slot.state = {
        {"state1", at::zeros(weight.sizes(), codes)}, {"qmap1", map1_.to(weight.device())},
        {"state2", at::zeros(weight.sizes(), codes)}, {"qmap2", map2_.to(weight.device())},
        {"absmax1", at::zeros({blocks}, wide)},       {"absmax2", at::zeros({blocks}, wide)}};
  }

 private:
  static DynamicState dynamic(const Slot& slot) {
    return {slot.at("state1"), slot.at("state2"), slot.at("absmax1"), slot.at("absmax2")};
  }

  void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) override {
    const Parameter& parameter = parameter_of(slot);
    const AdamWUpdate numbers = make_update(options(), learning_rate, weight_decay_of(slot),
                                            slot.updates, factor, rounding_key(slot, update));
    if (slot.is_8bit) {
      update_adamw(parameter, dynamic(slot), numbers);
    } else {
      update_adamw(parameter, WideState{slot.at("state1"), slot.at("state2")}, numbers);
    }
  }

  [[nodiscard]] Moments read_moments(const Slot& slot) const override {
    if (!slot.is_8bit) return {slot.at("state1").clone(), slot.at("state2").clone()};
    const Tensor& codes = slot.at("state1");
    const auto wide = codes.options().dtype(at::kFloat);
    Moments moments{at::empty(codes.sizes(), wide), at::empty(codes.sizes(), wide)};
    decode(dynamic(slot), moments.exp_avg, moments.exp_avg_sq);
    return moments;
  }

  void write_moments(Slot& slot, const Moments& moments) const override {
    if (slot.is_8bit) {
      encode(moments.exp_avg.contiguous(), moments.exp_avg_sq.contiguous(), dynamic(slot));
    } else {
      slot.at("state1").copy_(moments.exp_avg);
      slot.at("state2").copy_(moments.exp_avg_sq);
    }
  }

  Tensor map1_, map2_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_8bit(ParameterStore& parameters,
                                           const std::vector<bool>& decays,
                                           const OptimizerOptions& options) {
  return std::make_unique<AdamW8bit>(parameters, decays, options);
}

}  // namespace finetune
