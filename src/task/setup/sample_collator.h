// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/data/loader.h"

namespace finetune {

// Pads as `padding` does. Each sample is a target, with a label or without.
[[nodiscard]] std::shared_ptr<const Collator> make_sample_collator(
    std::shared_ptr<const Collator> padding);

}  // namespace finetune
