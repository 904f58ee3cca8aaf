// SPDX-License-Identifier: MIT
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <map>
#include <optional>

#include "finetune/kernels/parameter_chunks.h"
#include "optim/update_rule.h"

namespace finetune {
namespace {

// AdamW (Loshchilov and Hutter 2019, algorithm 2) with torch's fused kernel; moments in float32.
class FusedAdamW final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void update(const ParameterUpdate& u) override {
    const Tensor& average = u.slot.at("exp_avg");
    const Tensor& square = u.slot.at("exp_avg_sq");
    update_in_chunks(u.parameter, u.factor, u.rounding_key, [&](const ParameterChunk& chunk) {
      Lists lists;
      lists.add(chunk.weight, chunk.gradient, chunk.of(average), chunk.of(square), u.slot.updates);
      run(lists, u.learning_rate, 1.0);
    });
  }

  // Without conversions a group is one call of torch's kernel: one launch on a GPU.
  void update_all(const std::vector<ParameterUpdate>& updates) override {
    if (!std::ranges::all_of(updates, is_plain)) {
      const auto state_of = [](const OptimizerSlot& slot) {
        return MomentState{slot.at("exp_avg"), slot.at("exp_avg_sq")};
      };
      if (!update_together(options(), updates, state_of)) UpdateRule::update_all(updates);
      return;
    }
    if (updates.empty()) return;
    Lists lists;
    for (const ParameterUpdate& u : updates) {
      lists.add(u.parameter.weight.detach(), u.parameter.gradient, u.slot.at("exp_avg"),
                u.slot.at("exp_avg_sq"), u.slot.updates);
    }
    run(lists, updates.front().learning_rate, updates.front().factor);
  }

  [[nodiscard]] Moments read_moments(const OptimizerSlot& slot) const override {
    return {slot.at("exp_avg").clone(), slot.at("exp_avg_sq").clone()};
  }

  void write_moments(OptimizerSlot& slot, const Moments& moments) const override {
    slot.at("exp_avg").copy_(moments.exp_avg);
    slot.at("exp_avg_sq").copy_(moments.exp_avg_sq);
  }

 private:
  struct Lists {
    std::vector<Tensor> weights, gradients, averages, squares, steps;
    std::map<int64_t, Tensor> step_of;  // by number of updates: one launch for all parameters

    void add(const Tensor& weight, const Tensor& gradient, const Tensor& average,
             const Tensor& square, int64_t updates) {
      weights.push_back(weight);
      gradients.push_back(gradient);
      averages.push_back(average);
      squares.push_back(square);
      Tensor& step = step_of[updates];
      if (!step.defined()) step = at::full({}, static_cast<double>(updates), average.options());
      steps.push_back(step);
    }
  };

  // On a device the fused kernel also scales the gradients (and stores them). On the CPU it is
  // faster to scale chunks that stay in the cache.
  static bool is_plain(const ParameterUpdate& u) {
    return (u.factor == 1.0 || is_asynchronous(u.parameter.weight)) &&
           u.parameter.weight.scalar_type() == at::kFloat &&
           u.parameter.gradient.scalar_type() == at::kFloat;
  }

  void run(Lists& lists, double learning_rate, double factor) const {
    std::optional<Tensor> divisor;
    if (factor != 1.0) divisor = at::full({}, 1.0 / factor, lists.averages.front().options());
    at::_fused_adamw_(lists.weights, lists.gradients, lists.averages, lists.squares, {},
                      lists.steps, learning_rate, options().beta1, options().beta2,
                      options().weight_decay, options().epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, /*grad_scale=*/divisor);
  }
};

std::vector<StateTensor> adamw_state(at::IntArrayRef sizes, bool, const OptimizerOptions&) {
  return {{.name = "exp_avg", .shape = sizes.vec(), .is_signed = true},
          {.name = "exp_avg_sq", .shape = sizes.vec()}};
}

// The options of torch.optim.AdamW(fused=True).
void add_adamw_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("betas", TorchTuple{{options.beta1, options.beta2}});
  group.set("eps", options.epsilon);
  group.set("amsgrad", false);
  group.set("maximize", false);
  group.set("foreach", TorchValue());
  group.set("capturable", false);
  group.set("differentiable", false);
  group.set("fused", true);
  group.set("decoupled_weight_decay", true);
}

}  // namespace

OptimizerKind adamw_optimizer() {
  return {.make = make_rule<FusedAdamW>,
          .state = adamw_state,
          .has_moments = true,
          .is_blockwise = true,
          .torch = {.add_options = add_adamw_options, .step_is_tensor = true}};
}

}  // namespace finetune
