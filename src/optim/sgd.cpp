// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include "finetune/kernels/parameter_chunks.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

// torch.optim.SGD with dampening 0: coupled weight decay, momentum, Nesterov's where asked for.
class Sgd final : public Optimizer {
 public:
  Sgd(ParameterStore& parameters, const std::vector<bool>& decays, const OptimizerOptions& options)
      : Optimizer(parameters, decays, options) {}

  // torch begins a buffer with the first gradient, which is what zeros lead to.
  void create_state(Slot& slot) const override {
    if (options().momentum == 0.0) return;
    const Tensor& weight = parameter_of(slot).weight;
    const auto like = weight.options().dtype(at::kFloat).requires_grad(false);
    slot.state = {{"momentum_buffer", at::zeros(weight.sizes(), like)}};
  }

 private:
  void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) override {
    const double decay = weight_decay_of(slot);
    const double momentum = options().momentum;
    const Tensor* buffer = slot.find("momentum_buffer");
    update_in_chunks(
        parameter_of(slot), factor, rounding_key(slot, update), [&](const ParameterChunk& chunk) {
          Tensor direction = chunk.gradient;
          if (decay != 0.0) direction = at::add(direction, chunk.weight, decay);
          if (buffer != nullptr) {
            const Tensor average = chunk.of(*buffer);
            average.mul_(momentum).add_(direction);
            direction = options().nesterov ? at::add(direction, average, momentum) : average;
          }
          chunk.weight.add_(direction, -learning_rate);
        });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(ParameterStore& parameters, const std::vector<bool>& decays,
                                    const OptimizerOptions& options) {
  return std::make_unique<Sgd>(parameters, decays, options);
}

}  // namespace finetune
