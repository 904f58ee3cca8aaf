// SPDX-License-Identifier: MIT
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {

DropoutArguments dropout_arguments(const std::optional<DropoutNumbers>& numbers,
                                   int64_t rows_per_sample, const TokenLayout* layout,
                                   Launch& launch) {
  if (!numbers) return {};
  const auto tensor = [&](Tensor TokenLayout::*member) {
    return layout == nullptr ? nullptr : launch.reads<i64>(layout->*member);
  };
  return {.key0 = numbers->key[0],
          .key1 = numbers->key[1],
          .first_position = numbers->first_position,
          .layer_and_site = numbers->layer_and_site,
          .threshold = numbers->threshold(),
          .scale = numbers->scale(),
          .is_on = 1,
          .rows_per_sample = static_cast<int>(rows_per_sample),
          .sequences = tensor(&TokenLayout::sequences),
          .positions = tensor(&TokenLayout::positions)};
}

}  // namespace finetune::kernels::cuda
