// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/distributed/world.h"
#include "finetune/task/task.h"

namespace finetune {

// Exchanges outputs between processes that evaluate different batches, so that each of them counts
// all batches in the order of one process.
class OutputsExchange {
 public:
  // `best_alone`: of logits over a vocabulary, send only the most probable word.
  OutputsExchange(World& world, bool best_alone) : world_(world), best_alone_(best_alone) {}

  // Returns the outputs of all processes' batches in the order of ranks. `compute` returns those of
  // this process; it is not called without `has_batch`. Returns nullopt if `stops` is true in any
  // process. An out-of-memory error in one process is thrown in all. `parameters`: of a divided
  // model, whose forward pass every process takes part in.
  [[nodiscard]] std::optional<std::vector<Outputs>> share(
      bool has_batch, const std::function<std::vector<Outputs>()>& compute, bool stops,
      ParameterExchange* parameters = nullptr) const;

  // Converts to bytes and back without loss.
  [[nodiscard]] static std::string to_bytes(const Outputs& outputs, bool best_alone);
  [[nodiscard]] static Outputs from_bytes(const std::string& bytes);

 private:
  World& world_;
  bool best_alone_;
};

}  // namespace finetune
