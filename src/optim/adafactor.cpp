// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "finetune/kernels/parameter_chunks.h"
#include "finetune/kernels/sum_of_squares.h"
#include "optim/update_rule.h"

namespace finetune {
namespace {

constexpr double kEpsilon = 1e-30;  // added to squared gradients
constexpr double kClipThreshold = 1.0;
constexpr double kDecayRate = -0.8;

// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5) as transformers' Trainer configures it: no
// first moment, an external learning rate, updates clipped to a root mean square of 1. The second
// moments V of a matrix are factored: V[i, j] = rows[i] columns[j] / mean(rows). The update g /
// sqrt(V) is never stored but computed again in each pass.
class Adafactor final : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;

  void update(const ParameterUpdate& u) override {
    const Parameter& parameter = u.parameter;
    const OptimizerSlot& slot = u.slot;
    const double kept = 1.0 - std::pow(static_cast<double>(slot.updates), kDecayRate);
    const bool is_matrix = parameter.weight.dim() == 2;
    Pass pass{.parameter = parameter,
              .factor = u.factor,
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
    apply(u, pass);
  }

 private:
  // What each pass over a parameter needs.
  struct Pass {
    const Parameter& parameter;
    double factor;
    int64_t row;                                               // values in a row
    std::function<Tensor(const ParameterChunk& chunk)> scale;  // update = scale * gradient
  };

  static void average_rows_and_columns(const OptimizerSlot& slot, const Pass& pass, double kept) {
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

  static void average_values(const OptimizerSlot& slot, const Pass& pass, double kept) {
    const Tensor& averages = slot.at("exp_avg_sq");
    read_gradient_in_chunks(pass.parameter, pass.factor, [&](const ParameterChunk& chunk) {
      chunk.of(averages).mul_(kept).add_(chunk.gradient.square() + kEpsilon, 1.0 - kept);
    });
  }

  void apply(const ParameterUpdate& u, const Pass& pass) const {
    double sum = 0.0;
    read_gradient_in_chunks(
        pass.parameter, pass.factor,
        [&](const ParameterChunk& chunk) {
          sum += sum_of_squares(pass.scale(chunk).mul_(chunk.gradient));
        },
        pass.row);
    const auto count = static_cast<double>(pass.parameter.weight.numel());
    const double clip = std::max(1.0, std::sqrt(sum / count) / kClipThreshold);
    const double decay = options().weight_decay;
    double weights = 0.0;
    update_in_chunks(
        pass.parameter, pass.factor, u.rounding_key,
        [&](const ParameterChunk& chunk) {
          weights += sum_of_squares(chunk.weight);
          if (decay != 0.0) chunk.weight.add_(chunk.weight, -decay * u.learning_rate);
          chunk.weight.sub_(
              pass.scale(chunk).mul_(chunk.gradient).div_(clip).mul_(u.learning_rate));
        },
        pass.row);
    u.slot.at("RMS").fill_(std::sqrt(weights / count));
  }
};

// Second moments of a matrix are the means of its rows and of its columns.
std::vector<StateTensor> adafactor_state(at::IntArrayRef sizes, bool, const OptimizerOptions&) {
  const StateTensor rms = {.name = "RMS", .is_optional = true};
  if (sizes.size() < 2) return {{.name = "exp_avg_sq", .shape = sizes.vec()}, rms};
  std::vector<int64_t> columns = sizes.vec();
  columns.erase(columns.end() - 2);
  return {{.name = "exp_avg_sq_row", .shape = sizes.slice(0, sizes.size() - 1).vec()},
          {.name = "exp_avg_sq_col", .shape = columns},
          rms};
}

std::string adafactor_refusal(const Parameter& parameter) {
  return parameter.weight.dim() <= 2 ? "" : "it is neither a matrix nor a vector";
}

// transformers' defaults, with the two values that its Trainer sets.
void add_adafactor_options(TorchDict& group, const OptimizerOptions&) {
  group.set("eps", TorchTuple{{kEpsilon, 1e-3}});
  group.set("clip_threshold", kClipThreshold);
  group.set("decay_rate", kDecayRate);
  group.set("beta1", TorchValue());
  group.set("scale_parameter", false);
  group.set("relative_step", false);
  group.set("warmup_init", false);
}

}  // namespace

OptimizerKind adafactor_optimizer() {
  return {.make = make_rule<Adafactor>,
          .state = adafactor_state,
          .refusal = adafactor_refusal,
          .reads_whole = true,
          .torch = {.add_options = add_adafactor_options,
                    .group_keys = {"scale_parameter"},
                    .state_keys = {"exp_avg_sq_row"},
                    .refused_states = {
                        {"exp_avg", "belongs to Adafactor with beta1, which is not read"}}}};
}

}  // namespace finetune
