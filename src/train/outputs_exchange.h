// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/distributed/world.h"
#include "finetune/task/task.h"

namespace finetune {

// What processes that evaluate different batches tell each other, so that each of them counts all
// batches in their order, as one process does.
class OutputsExchange {
 public:
  // `best_alone`: of logits over a vocabulary only the most probable word is sent.
  OutputsExchange(World& world, bool best_alone) : world_(world), best_alone_(best_alone) {}

  // The outputs of all processes' batches, in the order of ranks; `compute` returns this process's
  // and is not called where it has no batch left. Nothing where `stops` in one of them. A lack of
  // memory in one of them is thrown in all.
  [[nodiscard]] std::optional<std::vector<Outputs>> share(
      bool has_batch, const std::function<std::vector<Outputs>()>& compute, bool stops) const;

  // As bytes and back; exact.
  [[nodiscard]] static std::string to_bytes(const Outputs& outputs, bool best_alone);
  [[nodiscard]] static Outputs from_bytes(const std::string& bytes);

 private:
  World& world_;
  bool best_alone_;
};

}  // namespace finetune
