// SPDX-License-Identifier: MIT
#include "finetune/distributed/world.h"

namespace finetune {
namespace {

class SingleProcess final : public World {
 public:
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t size() const override { return 1; }
  [[nodiscard]] int64_t sum(int64_t value) override { return value; }
  void sum_gradients(const std::vector<Tensor>&) override {}
};

}  // namespace

std::unique_ptr<World> make_single_process_world() { return std::make_unique<SingleProcess>(); }

}  // namespace finetune
