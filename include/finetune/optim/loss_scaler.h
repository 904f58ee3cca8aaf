// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Dynamic loss scaling for float16, like torch.amp.GradScaler with its defaults (Micikevicius et
// al. 2018, section 3.2): the loss is multiplied by scale(), the gradients are divided by it, and
// an update with non-finite gradients is skipped.
class LossScaler {
 public:
  static constexpr double kInitialScale = 65536.0;
  static constexpr double kGrowthFactor = 2.0;
  static constexpr double kBackoffFactor = 0.5;
  static constexpr int64_t kGrowthInterval = 2000;

  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] int64_t growth_tracker() const { return growth_tracker_; }

  // Called after each attempt: an overflow halves the scale, kGrowthInterval consecutive updates
  // without one double it.
  void update(bool overflowed);

  // Requires: scale > 0 and finite, growth_tracker >= 0.
  void restore(double scale, int64_t growth_tracker);

 private:
  double scale_ = kInitialScale;
  int64_t growth_tracker_ = 0;
};

}  // namespace finetune
