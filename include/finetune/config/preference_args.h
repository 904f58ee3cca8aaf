// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

namespace finetune {

class FieldList;

// Training on preferred and rejected answers; names and defaults are those of TRL's DPOConfig,
// ORPOConfig, CPOConfig and KTOConfig. describe() documents the keys.
struct PreferenceArgs {
  std::optional<double> beta;
  double label_smoothing = 0.0;
  double simpo_gamma = 0.5;
  double desirable_weight = 1.0;
  double undesirable_weight = 1.0;
  bool disable_dropout = true;
  bool precompute_ref_log_probs = true;

  static void describe(FieldList& field);
};

}  // namespace finetune
