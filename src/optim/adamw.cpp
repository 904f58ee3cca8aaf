// SPDX-License-Identifier: MIT
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "finetune/kernels/parameter_chunks.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

// AdamW (Loshchilov and Hutter 2019, algorithm 2) by torch's fused kernel, moments in float32.
class FusedAdamW final : public Optimizer {
 public:
  FusedAdamW(ParameterStore& parameters, const std::vector<bool>& decays,
             const OptimizerOptions& options)
      : Optimizer(parameters, decays, options) {}

  // Where nothing is converted a group is one call, as torch does it: one launch on a GPU.
  void step(double learning_rate, double factor, int64_t update) override {
    const bool is_plain = parameters().weight_format() == WeightFormat::kFloat32 &&
                          parameters().gradient_format() == GradientFormat::kFloat32;
    if (!is_plain || factor != 1.0) {
      Optimizer::step(learning_rate, factor, update);
      return;
    }
    const c10::NoGradGuard no_grad;
    for (const bool decays : {true, false}) {
      Lists lists;
      for (Slot& slot : slots()) {
        Parameter& parameter = parameter_of(slot);
        if (slot.decays != decays || !parameter.gradient.defined()) continue;
        if (slot.is_elsewhere) {
          ++slot.updates;
          continue;
        }
        begin_update(slot);
        lists.add(parameter.weight.detach(), parameter.gradient, slot.at("exp_avg"),
                  slot.at("exp_avg_sq"), slot.updates);
      }
      run(lists, learning_rate, decays ? options().weight_decay : 0.0);
    }
  }

  void create_state(Slot& slot) const override {
    const Tensor& weight = parameter_of(slot).weight;
    const auto like = weight.options().dtype(at::kFloat).requires_grad(false);
    slot.state = {{"exp_avg", at::zeros(weight.sizes(), like)},
                  {"exp_avg_sq", at::zeros(weight.sizes(), like)}};
  }

 private:
  struct Lists {
    std::vector<Tensor> weights, gradients, averages, squares, steps;

    void add(const Tensor& weight, const Tensor& gradient, const Tensor& average,
             const Tensor& square, int64_t updates) {
      weights.push_back(weight);
      gradients.push_back(gradient);
      averages.push_back(average);
      squares.push_back(square);
      steps.push_back(at::full({}, static_cast<double>(updates), average.options()));
    }
  };

  void run(Lists& lists, double learning_rate, double weight_decay) const {
    if (lists.weights.empty()) return;
    at::_fused_adamw_(lists.weights, lists.gradients, lists.averages, lists.squares, {},
                      lists.steps, learning_rate, options().beta1, options().beta2, weight_decay,
                      options().epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }

  void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) override {
    const Parameter& parameter = parameter_of(slot);
    const Tensor& average = slot.at("exp_avg");
    const Tensor& square = slot.at("exp_avg_sq");
    update_in_chunks(parameter, factor, rounding_key(slot, update),
                     [&](const ParameterChunk& chunk) {
                       Lists lists;
                       lists.add(chunk.weight, chunk.gradient, chunk.of(average), chunk.of(square),
                                 slot.updates);
                       run(lists, learning_rate, weight_decay_of(slot));
                     });
  }

  [[nodiscard]] Moments read_moments(const Slot& slot) const override {
    return {slot.at("exp_avg").clone(), slot.at("exp_avg_sq").clone()};
  }

  void write_moments(Slot& slot, const Moments& moments) const override {
    slot.at("exp_avg").copy_(moments.exp_avg);
    slot.at("exp_avg_sq").copy_(moments.exp_avg_sq);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(ParameterStore& parameters, const std::vector<bool>& decays,
                                      const OptimizerOptions& options) {
  return std::make_unique<FusedAdamW>(parameters, decays, options);
}

}  // namespace finetune
