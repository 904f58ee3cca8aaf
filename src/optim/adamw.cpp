// SPDX-License-Identifier: MIT
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "finetune/kernels/kernels_in_use.h"
#include "finetune/kernels/parameter_chunks.h"
#include "finetune/tensor/device.h"
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
      lists.add(chunk.weight, chunk.gradient, chunk.of(average), chunk.of(square),
                StepNumbers(average.options()).of(u.slot.updates));
      run(lists, u.learning_rate, 1.0);
    });
  }

  // Where nothing is converted a group is one call on a GPU, as torch does it, and one pass over
  // lists of chunks on the CPU.
  void update_all(const std::vector<ParameterUpdate>& updates) override {
    if (updates.empty()) return;
    if (!std::ranges::all_of(updates, is_float)) {
      const auto state_of = [](const OptimizerSlot& slot) {
        return MomentState{slot.at("exp_avg"), slot.at("exp_avg_sq")};
      };
      if (!update_together(options(), updates, state_of)) UpdateRule::update_all(updates);
      return;
    }
    if (!is_asynchronous(updates.front().parameter.weight.device())) return update_listed(updates);
    Lists lists;
    StepNumbers steps(updates.front().slot.at("exp_avg").options());
    for (const ParameterUpdate& u : updates) {
      lists.add(u.parameter.weight.detach(), u.parameter.gradient, u.slot.at("exp_avg"),
                u.slot.at("exp_avg_sq"), steps.of(u.slot.updates));
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

    void add(const Tensor& weight, const Tensor& gradient, const Tensor& average,
             const Tensor& square, const Tensor& step) {
      weights.push_back(weight);
      gradients.push_back(gradient);
      averages.push_back(average);
      squares.push_back(square);
      steps.push_back(step);
    }
  };

  // The number of updates as the kernel takes it: a tensor, one for all parameters with this
  // number.
  class StepNumbers {
   public:
    explicit StepNumbers(const at::TensorOptions& options) : options_(options) {}
    const Tensor& of(int64_t updates) {
      Tensor& step = step_of_[updates];
      if (!step.defined()) step = at::full({}, static_cast<double>(updates), options_);
      return step;
    }

   private:
    at::TensorOptions options_;
    std::map<int64_t, Tensor> step_of_;
  };

  static bool is_float(const ParameterUpdate& u) {
    return u.parameter.weight.scalar_type() == at::kFloat &&
           u.parameter.gradient.scalar_type() == at::kFloat;
  }

  void update_listed(const std::vector<ParameterUpdate>& updates) const {
    std::vector<const ParameterTensors*> parameters;
    std::vector<Tensor> averages, squares, steps;
    StepNumbers numbers(updates.front().slot.at("exp_avg").options());
    for (const ParameterUpdate& u : updates) {
      parameters.push_back(&u.parameter);
      averages.push_back(u.slot.at("exp_avg"));
      squares.push_back(u.slot.at("exp_avg_sq"));
      steps.push_back(numbers.of(u.slot.updates));
    }
    const double learning_rate = updates.front().learning_rate;
    update_in_lists(parameters, updates.front().factor, [&](std::span<const ListedChunk> chunks) {
      Lists lists;
      for (const auto& [index, chunk] : chunks) {
        lists.add(chunk.weight, chunk.gradient, chunk.of(averages[index]), chunk.of(squares[index]),
                  steps[index]);
      }
      run(lists, learning_rate, 1.0);
    });
  }

  void run(Lists& lists, double learning_rate, double factor) const {
    std::optional<Tensor> divisor;
    // Where operators are compiled, one program with a divisor instead of one with and one without.
    const bool has_one = factor != 1.0 || compiles_shapes(lists.averages.front().device());
    if (has_one) divisor = at::full({}, 1.0 / factor, lists.averages.front().options());
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
