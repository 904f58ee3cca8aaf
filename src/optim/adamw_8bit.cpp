// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include "optim/update_rule.h"

namespace finetune {
namespace {

// Tensors with fewer than min_8bit_size values keep 32-bit states, and so do embeddings by default:
// transformers' Trainer asks bitsandbytes for 32 bits for the weight of each nn.Embedding.
bool has_8bit_state(ParameterRole role, int64_t count, const OptimizerOptions& options) {
  return count >= options.argument<int64_t>("min_8bit_size") &&
         (options.argument<bool>("embeddings_in_8bit") || is_ordinary(role) ||
          role == ParameterRole::kAdapter);
}

// With the names of bitsandbytes' state_dict.
std::vector<StateTensor> bitsandbytes_state(at::IntArrayRef sizes, bool is_8bit,
                                            const OptimizerOptions&) {
  const std::vector<int64_t> shape = sizes.vec();
  if (!is_8bit) {
    return {{.name = "state1", .shape = shape, .is_signed = true},
            {.name = "state2", .shape = shape}};
  }
  // Never destroyed: at exit a static tensor could outlive its allocator.
  static const auto& map1 = *new Tensor(dynamic_map(true));
  static const auto& map2 = *new Tensor(dynamic_map(false));
  const int64_t blocks = (c10::multiply_integers(sizes) + kDynamicBlock - 1) / kDynamicBlock;
  return {{.name = "state1", .type = at::kByte, .shape = shape},
          {.name = "qmap1", .shape = map1.sizes().vec(), .table = map1},
          {.name = "state2", .type = at::kByte, .shape = shape},
          {.name = "qmap2", .shape = map2.sizes().vec(), .table = map2},
          {.name = "absmax1", .shape = {blocks}},
          {.name = "absmax2", .shape = {blocks}}};
}

// bitsandbytes' AdamW8bit as transformers' Trainer configures it.
class AdamW8bit final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void update(const ParameterUpdate& u) override {
    const AdamWUpdate numbers = make_update(options(), u);
    if (u.slot.is_8bit) {
      update_adamw(u.parameter, dynamic(u.slot), numbers);
    } else {
      update_adamw(u.parameter, WideState{u.slot.at("state1"), u.slot.at("state2")}, numbers);
    }
  }

  void update_all(const std::vector<ParameterUpdate>& updates) override {
    const auto state_of = [](const OptimizerSlot& slot) -> AdamWState {
      if (slot.is_8bit) return dynamic(slot);
      return WideState{slot.at("state1"), slot.at("state2")};
    };
    if (!update_together(options(), updates, state_of)) UpdateRule::update_all(updates);
  }

  [[nodiscard]] Moments read_moments(const OptimizerSlot& slot) const override {
    if (!slot.is_8bit) return {slot.at("state1").clone(), slot.at("state2").clone()};
    const Tensor& codes = slot.at("state1");
    const auto wide = codes.options().dtype(at::kFloat);
    Moments moments{at::empty(codes.sizes(), wide), at::empty(codes.sizes(), wide)};
    decode(dynamic(slot), moments.exp_avg, moments.exp_avg_sq);
    return moments;
  }

  void write_moments(OptimizerSlot& slot, const Moments& moments) const override {
    if (slot.is_8bit) {
      encode(moments.exp_avg.contiguous(), moments.exp_avg_sq.contiguous(), dynamic(slot));
    } else {
      slot.at("state1").copy_(moments.exp_avg);
      slot.at("state2").copy_(moments.exp_avg_sq);
    }
  }

 private:
  static DynamicState dynamic(const OptimizerSlot& slot) {
    return {slot.at("state1"), slot.at("state2"), slot.at("absmax1"), slot.at("absmax2")};
  }
};

void add_bitsandbytes_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("betas", TorchTuple{{options.beta1, options.beta2}});
  group.set("eps", options.epsilon);
  group.set("alpha", 0.0);
  group.set("t_alpha", TorchValue());
  group.set("t_beta3", TorchValue());
}

}  // namespace

OptimizerKind adamw_8bit_optimizer() {
  return {.make = make_rule<AdamW8bit>,
          .state = bitsandbytes_state,
          .is_8bit = has_8bit_state,
          .has_moments = true,
          .is_blockwise = true,
          .torch = {.add_options = add_bitsandbytes_options, .state_keys = {"state1"}}};
}

}  // namespace finetune
