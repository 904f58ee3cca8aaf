// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "finetune/model/model.h"
#include "task/generate/generation_config.h"

namespace finetune {

// Continues texts with a causal language model. The cache keeps keys and values, so each token
// passes through the model once.
class Generator {
 public:
  // `model` must outlive this.
  Generator(Model& model, c10::Device device, GenerationConfig config, uint64_t seed)
      : model_(model), device_(device), config_(std::move(config)), seed_(seed) {}

  // If the next prompt begins with all tokens that were computed for the last one, they do not pass
  // through the model again.
  void keep_cache() { keeps_cache_ = true; }

  // Returns the tokens after the prompt, with the one that ends the text; `on_token` is called with
  // each. They depend only on (seed, number, prompt), not on what was generated before. Requires: a
  // prompt shorter than the model's longest text. Throws Interrupted.
  using OnToken = std::function<void(int32_t)>;
  [[nodiscard]] std::vector<int32_t> complete(const std::vector<int32_t>& prompt, uint64_t number,
                                              const OnToken& on_token = {});

 private:
  [[nodiscard]] KeyValueCache take_cache(const std::vector<int32_t>& prompt);
  [[nodiscard]] Tensor next_scores(std::span<const int32_t> ids, KeyValueCache& cache);
  [[nodiscard]] bool ends(int32_t id) const;

  Model& model_;
  c10::Device device_;
  GenerationConfig config_;
  uint64_t seed_;
  bool keeps_cache_ = false;
  std::vector<int32_t> cached_;  // the ids that cache_ has
  KeyValueCache cache_;
};

}  // namespace finetune
