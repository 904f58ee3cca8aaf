// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include "optim/update_rule.h"

namespace finetune {
namespace {

std::vector<StateTensor> companded_state(at::IntArrayRef sizes, bool, const OptimizerOptions&) {
  const std::vector<int64_t> shape = sizes.vec();
  const int64_t groups = (c10::multiply_integers(sizes) + kCompandedGroup - 1) / kCompandedGroup;
  return {{.name = "exp_avg_q", .type = at::kChar, .shape = shape},
          {.name = "exp_avg_scale", .shape = {groups}},
          {.name = "exp_avg_sq_q", .type = at::kByte, .shape = shape},
          {.name = "exp_avg_sq_scale", .shape = {groups}}};
}

// AdamW with FlashOptim's companded moments for every parameter.
class CompandedAdamW final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void update(const ParameterUpdate& u) override {
    update_adamw(u.parameter, companded(u.slot), make_update(options(), u));
  }

  void update_all(const std::vector<ParameterUpdate>& updates) override {
    if (!update_together(options(), updates, companded)) UpdateRule::update_all(updates);
  }

  [[nodiscard]] Moments read_moments(const OptimizerSlot& slot) const override {
    const Tensor& codes = slot.at("exp_avg_q");
    const auto wide = codes.options().dtype(at::kFloat);
    Moments moments{at::empty(codes.sizes(), wide), at::empty(codes.sizes(), wide)};
    decode(companded(slot), moments.exp_avg, moments.exp_avg_sq);
    return moments;
  }

  void write_moments(OptimizerSlot& slot, const Moments& moments) const override {
    encode(moments.exp_avg.contiguous(), moments.exp_avg_sq.contiguous(), companded(slot));
  }

 private:
  static CompandedState companded(const OptimizerSlot& slot) {
    return {slot.at("exp_avg_q"), slot.at("exp_avg_scale"), slot.at("exp_avg_sq_q"),
            slot.at("exp_avg_sq_scale")};
  }
};

}  // namespace

OptimizerKind adamw_companded_8bit_optimizer() {
  return {.make = make_rule<CompandedAdamW>,
          .state = companded_state,
          .is_8bit = [](ParameterRole, int64_t, const OptimizerOptions&) { return true; },
          .has_moments = true,
          .is_blockwise = true};
}

}  // namespace finetune
