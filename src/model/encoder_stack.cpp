// SPDX-License-Identifier: MIT
#include "model/encoder_stack.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/tensor/backward.h"

namespace finetune {
namespace {

// What waits for the backward pass: states of all layers, or inputs of groups of layers.
class KeptStack {
 public:
  KeptStack(const std::vector<StackedLayer>& layers, const ForwardContext& context, bool keeps)
      : layers_(layers),
        pass_{.parameters = *context.parameters,
              .mask = context.mask,
              .layout = context.layout,
              .dropout = context.dropout,
              .precision = context.precision(),
              .selective = context.options.selective},
        keeps_(keeps),
        offload_(context.options.offload),
        group_(static_cast<size_t>(context.options.checkpoint_every_n_layers)) {}

  Tensor forward(Tensor x) {
    if (keeps_ && group_ == 0) states_.resize(layers_.size());
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (keeps_ && group_ > 0 && i % group_ == 0) inputs_.push_back(stow(x));
      x = run(i, x, keeps_ && group_ == 0 ? &states_[i] : nullptr);
    }
    return x;
  }

  Tensor backward(Tensor gradient) {
    if (group_ == 0) return backward_through(0, states_, std::move(gradient));
    while (!inputs_.empty()) {
      const size_t first = (inputs_.size() - 1) * group_;
      std::vector<EncoderLayerState> states(std::min(group_, layers_.size() - first));
      Tensor x = inputs_.back().to(gradient.device());
      inputs_.pop_back();
      for (size_t i = 0; i < states.size(); ++i) {
        x = run(first + i, x, &states[i]);
      }
      x = Tensor();
      gradient = backward_through(first, states, std::move(gradient));
    }
    return gradient;
  }

 private:
  Tensor run(size_t layer, const Tensor& x, EncoderLayerState* state) {
    return encoder_layer_forward(x, layers_[layer].weights, layers_[layer].options, pass_, state);
  }

  Tensor backward_through(size_t first, std::vector<EncoderLayerState>& states, Tensor gradient) {
    for (size_t i = states.size(); i-- > 0;) {
      const StackedLayer& layer = layers_[first + i];
      gradient = encoder_layer_backward(std::move(gradient), layer.weights, layer.options, pass_,
                                        states[i]);
    }
    return gradient;
  }

  // On the host already, there is nowhere to move it to.
  [[nodiscard]] Tensor stow(const Tensor& x) const {
    if (!offload_ || x.is_cpu()) return x;
    const Tensor host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true));
    return host.copy_(x, /*non_blocking=*/true);
  }

  const std::vector<StackedLayer>& layers_;
  EncoderPass pass_;
  bool keeps_;
  bool offload_;
  size_t group_;  // 0: no checkpoints
  std::vector<EncoderLayerState> states_;
  std::vector<Tensor> inputs_;
};

}  // namespace

Tensor run_encoder_stack(const std::vector<StackedLayer>& layers, const Tensor& x,
                         const ForwardContext& context) {
  const Tensor input = x.to(scalar_type(context.precision()));
  const auto kept = std::make_shared<KeptStack>(
      layers, context, c10::GradMode::is_enabled() && input.requires_grad());
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = kept->forward(input.detach());
  }
  return attach_backward(y, {input}, [kept](Tensor gradient) -> std::vector<Tensor> {
    return {kept->backward(std::move(gradient))};
  });
}

}  // namespace finetune
