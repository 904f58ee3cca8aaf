// SPDX-License-Identifier: MIT
#include "finetune/optim/loss_scaler.h"

#include <cmath>

#include "finetune/base/error.h"

namespace finetune {

// The scale is a float32, as in torch: at::_amp_update_scale_ doubles it only while it stays
// finite.
void LossScaler::update(bool overflowed) {
  if (overflowed) {
    scale_ *= kBackoffFactor;
    growth_tracker_ = 0;
    return;
  }
  if (++growth_tracker_ < kGrowthInterval) return;
  growth_tracker_ = 0;
  const double grown = scale_ * kGrowthFactor;
  if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
}

void LossScaler::restore(double scale, int64_t growth_tracker) {
  FT_CHECK(std::isfinite(scale) && scale > 0.0 && growth_tracker >= 0, "a scaler's state");
  scale_ = scale;
  growth_tracker_ = growth_tracker;
}

}  // namespace finetune
