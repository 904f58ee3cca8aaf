// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "finetune/base/error.h"
#include "finetune/kernels/parameter_chunks.h"
#include "finetune/kernels/sum_of_squares.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

constexpr double kEpsilon = 1e-30;  // of squared gradients
constexpr double kClipThreshold = 1.0;
constexpr double kDecayRate = -0.8;

// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) as transformers' Trainer sets it up:
// no first moment, the learning rate given, updates clipped to a root mean square of 1. The update
// is made anew in every pass, so that it is never stored: the second moments of a matrix are a
// column and a row.
class Adafactor final : public Optimizer {
 public:
  Adafactor(ParameterStore& parameters, const std::vector<bool>& decays,
            const OptimizerOptions& options)
      : Optimizer(parameters, decays, options) {}

  void create_state(Slot& slot) const override {
    const Tensor& weight = parameter_of(slot).weight;
    const auto like = weight.options().dtype(at::kFloat).requires_grad(false);
    if (weight.dim() < 2) {
      slot.state = {{"exp_avg_sq", at::zeros(weight.sizes(), like)}};
    } else {
      std::vector<int64_t> columns = weight.sizes().vec();
      columns.erase(columns.end() - 2);
      slot.state = {{"exp_avg_sq_row", at::zeros(weight.sizes().slice(0, weight.dim() - 1), like)},
                    {"exp_avg_sq_col", at::zeros(columns, like)}};
    }
    slot.state.emplace_back("RMS", at::zeros({}, like));
  }

 private:
  // What a pass over a parameter needs.
  struct Pass {
    const Parameter& parameter;
    double factor;
    int64_t row;                                               // values in one
    std::function<Tensor(const ParameterChunk& chunk)> scale;  // update = scale * gradient
  };

  void update_slot(Slot& slot, double learning_rate, double factor, int64_t update) override {
    const Parameter& parameter = parameter_of(slot);
    FT_CHECK(parameter.weight.dim() <= 2, "adafactor is written for matrices and vectors");
    const double kept = 1.0 - std::pow(static_cast<double>(slot.updates), kDecayRate);
    const bool is_matrix = parameter.weight.dim() == 2;
    Pass pass{.parameter = parameter,
              .factor = factor,
              .row = is_matrix ? parameter.weight.size(1) : 1,
              .scale = {}};
    if (is_matrix) {
      average_rows_and_columns(slot, pass, kept);
      const Tensor& rows = slot.at("exp_avg_sq_row");
      const Tensor of_rows = (rows / mean(rows)).rsqrt_().unsqueeze(1);
      const Tensor of_columns = slot.at("exp_avg_sq_col").rsqrt().unsqueeze(0);
      pass.scale = [of_rows, of_columns, row = pass.row](const ParameterChunk& chunk) {
        return (of_rows.narrow(0, chunk.first / row, chunk.count / row) * of_columns).view(-1);
      };
    } else {
      average_values(slot, pass, kept);
      const Tensor& averages = slot.at("exp_avg_sq");
      pass.scale = [averages](const ParameterChunk& chunk) { return chunk.of(averages).rsqrt(); };
    }
    apply(slot, pass, learning_rate, update);
  }

  static void average_rows_and_columns(const Slot& slot, const Pass& pass, double kept) {
    const Tensor& rows = slot.at("exp_avg_sq_row");
    const Tensor& columns = slot.at("exp_avg_sq_col");
    const Tensor sums = at::zeros(columns.sizes(), columns.options());
    read_gradient_in_chunks(
        pass.parameter, pass.factor,
        [&](const ParameterChunk& chunk) {
          const Tensor squares = (chunk.gradient.square() + kEpsilon).view({-1, pass.row});
          rows.narrow(0, chunk.first / pass.row, chunk.count / pass.row)
              .mul_(kept)
              .add_(squares.mean(1), 1.0 - kept);
          sums.add_(squares.sum(0));
        },
        pass.row);
    columns.mul_(kept).add_(sums / static_cast<double>(rows.numel()), 1.0 - kept);
  }

  static void average_values(const Slot& slot, const Pass& pass, double kept) {
    const Tensor& averages = slot.at("exp_avg_sq");
    read_gradient_in_chunks(pass.parameter, pass.factor, [&](const ParameterChunk& chunk) {
      chunk.of(averages).mul_(kept).add_(chunk.gradient.square() + kEpsilon, 1.0 - kept);
    });
  }

  void apply(const Slot& slot, const Pass& pass, double learning_rate, int64_t update) const {
    double sum = 0.0;
    read_gradient_in_chunks(
        pass.parameter, pass.factor,
        [&](const ParameterChunk& chunk) {
          sum += sum_of_squares(pass.scale(chunk).mul_(chunk.gradient));
        },
        pass.row);
    const auto count = static_cast<double>(pass.parameter.weight.numel());
    const double clip = std::max(1.0, std::sqrt(sum / count) / kClipThreshold);
    const double decay = weight_decay_of(slot);
    double weights = 0.0;
    update_in_chunks(
        pass.parameter, pass.factor, rounding_key(slot, update),
        [&](const ParameterChunk& chunk) {
          weights += sum_of_squares(chunk.weight);
          if (decay != 0.0) chunk.weight.add_(chunk.weight, -decay * learning_rate);
          chunk.weight.sub_(pass.scale(chunk).mul_(chunk.gradient).div_(clip).mul_(learning_rate));
        },
        pass.row);
    slot.at("RMS").fill_(std::sqrt(weights / count));
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(ParameterStore& parameters,
                                          const std::vector<bool>& decays,
                                          const OptimizerOptions& options) {
  return std::make_unique<Adafactor>(parameters, decays, options);
}

}  // namespace finetune
