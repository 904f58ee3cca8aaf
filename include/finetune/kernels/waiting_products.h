// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Bytes of products that wait to be rounded into bfloat16 gradients on a device
// (ParameterStore::add_pending), at most: of a model whose layers have products of at most
// `largest` values and of `all` values in all.
[[nodiscard]] int64_t waiting_product_bytes(int64_t largest, int64_t all);

}  // namespace finetune
