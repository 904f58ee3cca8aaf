// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "finetune/tensor/tensor.h"

namespace finetune {

// The processes that train together. A world of one is the default object, not a special case.
class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual int64_t sum(int64_t value) = 0;
  virtual void sum_gradients(const std::vector<Tensor>& gradients) = 0;
};

[[nodiscard]] std::unique_ptr<World> make_single_process_world();

}  // namespace finetune
