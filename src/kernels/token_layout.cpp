// SPDX-License-Identifier: MIT
#include "finetune/kernels/token_layout.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/tensor/device.h"
#include "kernels/cuda/operations.h"

namespace finetune {

std::shared_ptr<TokenLayout> make_token_layout(const std::vector<int64_t>& lengths, int64_t length,
                                               c10::Device device) {
  auto layout = std::make_shared<TokenLayout>();
  layout->offsets.reserve(lengths.size() + 1);
  layout->offsets.push_back(0);
  for (const int64_t tokens : lengths) {
    FT_CHECK(tokens >= 1 && tokens <= length, "a row holds 1 to T tokens");
    layout->offsets.push_back(layout->offsets.back() + tokens);
    layout->longest = std::max(layout->longest, tokens);
  }
  const int64_t all = layout->tokens();
  // Only the kernels of cuda/ read the starts of sequences on the device.
  const bool has_starts = &kernels::kernels_for(device) == &kernels::cuda::kKernels;
  const int64_t starts = has_starts ? static_cast<int64_t>(layout->offsets.size()) : 0;
  const bool is_pinned = features_of(device).pinned;
  const Tensor numbers = at::empty({3 * all + starts}, host_options(at::kLong, device));
  auto* cells = numbers.mutable_data_ptr<int64_t>();
  int64_t* sequences = cells + all;
  int64_t* positions = sequences + all;
  if (has_starts) std::ranges::copy(layout->offsets, positions + all);
  for (size_t row = 0; row < lengths.size(); ++row) {
    const auto b = static_cast<int64_t>(row);
    for (int64_t t = 0; t < lengths[row]; ++t) {
      *cells++ = b * length + t;
      *sequences++ = b;
      *positions++ = t;
    }
  }
  const Tensor on_device = numbers.to(device, /*non_blocking=*/is_pinned);
  layout->cells = on_device.narrow(0, 0, all);
  layout->sequences = on_device.narrow(0, all, all);
  layout->positions = on_device.narrow(0, 2 * all, all);
  if (has_starts) {
    layout->starts = on_device.narrow(0, 3 * all, starts);
    layout->starts32 = layout->starts.to(at::kInt);
  }
  return layout;
}

}  // namespace finetune
