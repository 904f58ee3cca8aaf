// SPDX-License-Identifier: MIT
#include "finetune/state/divergence.h"

#include <algorithm>
#include <cmath>

#include "finetune/base/json.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::optional<std::string> spike_of(const std::string& what, double value,
                                    const std::optional<double>& factor,
                                    const std::vector<double>& recent) {
  if (!factor || recent.size() < kLeastForSpike) return std::nullopt;
  const double median = median_of(recent);
  if (median <= 0.0 || value <= *factor * median) return std::nullopt;
  return format_text("the {} is {}, more than {} times the median {} of the last {} updates", what,
                     format_double(value), format_double(*factor), format_double(median),
                     recent.size());
}

void keep_newest(std::vector<double>& values, double value, bool is_kept) {
  if (!is_kept) {
    values.clear();
    return;
  }
  values.push_back(value);
  if (values.size() > kSpikeWindow) values.erase(values.begin());
}

}  // namespace

std::optional<std::string> fault_of(const DivergenceOptions& options, const DivergenceState& state,
                                    double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    return "the loss is " + format_double(loss) + " and the gradient norm " +
           format_double(grad_norm);
  }
  const auto spike = spike_of("loss", loss, options.loss_spike_factor, state.recent_losses);
  return spike ? spike
               : spike_of("gradient norm", grad_norm, options.grad_norm_spike_factor,
                          state.recent_grad_norms);
}

bool has_faulty_loss(const DivergenceOptions& options, const DivergenceState& state, double loss) {
  return fault_of(options, state, loss, 0.0).has_value();
}

Remedy remedy_for(const DivergenceOptions& options, const DivergenceState& state,
                  const Damage& damage) {
  if (options.policy == DivergencePolicy::kStop || state.tries > options.max_tries) {
    return Remedy::kStop;
  }
  const bool can_skip = !damage.is_half_applied && !damage.is_in_state;
  return options.policy == DivergencePolicy::kSkip && can_skip ? Remedy::kSkip : Remedy::kRollBack;
}

void count_fault(DivergenceState& state, int64_t step) {
  ++state.tries;
  state.faulty_step = std::max(state.faulty_step, step);
}

void count_update(const DivergenceOptions& options, DivergenceState& state, int64_t step,
                  double loss, double grad_norm) {
  if (step > state.faulty_step) state.tries = 0;
  keep_newest(state.recent_losses, loss, options.loss_spike_factor.has_value());
  keep_newest(state.recent_grad_norms, grad_norm, options.grad_norm_spike_factor.has_value());
}

bool is_left_out(const DivergenceState& state, const Position& position, int64_t samples) {
  return std::ranges::any_of(state.left_out, [&](const LeftOut& out) {
    return out.position.epoch == position.epoch &&
           position.sample < out.position.sample + out.samples &&
           out.position.sample < position.sample + samples;
  });
}

DivergenceState after_rollback(const DivergenceState& before, const DivergenceState& restored) {
  DivergenceState state = before;
  state.rollbacks = before.rollbacks + 1;
  state.skipped_updates = restored.skipped_updates;
  state.recent_losses = restored.recent_losses;
  state.recent_grad_norms = restored.recent_grad_norms;
  return state;
}

}  // namespace finetune
