// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>

#include "finetune/kernels/parameter_chunks.h"
#include "optim/update_rule.h"

namespace finetune {
namespace {

// torch starts the buffer with the first gradient, which equals starting with zeros.
std::vector<StateTensor> sgd_state(at::IntArrayRef sizes, bool, const OptimizerOptions& options) {
  if (options.argument<double>("momentum") == 0.0) return {};
  return {{.name = "momentum_buffer", .shape = sizes.vec(), .is_signed = true}};
}

// torch.optim.SGD with dampening 0: weight decay is added to the gradient; momentum, optionally
// Nesterov's.
class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : UpdateRule(options),
        momentum_(options.argument<double>("momentum")),
        nesterov_(options.argument<bool>("nesterov")) {}

  void update(const ParameterUpdate& u) override {
    const double decay = options().weight_decay;
    const Tensor* buffer = u.slot.find("momentum_buffer");
    update_in_chunks(u.parameter, u.factor, u.rounding_key, [&](const ParameterChunk& chunk) {
      Tensor direction = chunk.gradient;
      if (decay != 0.0) direction = at::add(direction, chunk.weight, decay);
      if (buffer != nullptr) {
        const Tensor average = chunk.of(*buffer);
        average.mul_(momentum_).add_(direction);
        direction = nesterov_ ? at::add(direction, average, momentum_) : average;
      }
      chunk.weight.add_(direction, -u.learning_rate);
    });
  }

 private:
  double momentum_;
  bool nesterov_;
};

void add_sgd_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("momentum", options.argument<double>("momentum"));
  group.set("dampening", 0);
  group.set("nesterov", options.argument<bool>("nesterov"));
  group.set("maximize", false);
  group.set("foreach", TorchValue());
  group.set("differentiable", false);
  group.set("fused", TorchValue());
}

}  // namespace

OptimizerKind sgd_optimizer() {
  return {.make = make_rule<Sgd>,
          .state = sgd_state,
          .torch = {.add_options = add_sgd_options,
                    .counts_updates = false,
                    .group_keys = {"momentum", "nesterov"},
                    .state_keys = {"momentum_buffer"}}};
}

}  // namespace finetune
