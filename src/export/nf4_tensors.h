// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "finetune/export/merged_model.h"

namespace finetune {

// Appends a matrix in bitsandbytes' NF4: codes under its name, and under names with endings what
// they mean. `type`: the type in which it is computed, to which its values are rounded first. With
// `nested`, its scales are quantised too, and it is read once now, because their mean is part of a
// text whose length must be known. While it is written, one matrix at a time is in memory.
void add_nf4_tensors(const MergedTensor& tensor, at::ScalarType type, bool nested,
                     LazyTensors& tensors);

// The entry quantization_config of config.json; `whole`: the modules that are not quantised.
[[nodiscard]] nlohmann::ordered_json nf4_quantization_config(const std::string& type, bool nested,
                                                             const std::vector<std::string>& whole);

}  // namespace finetune
