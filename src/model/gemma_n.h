// SPDX-License-Identifier: MIT
#pragma once

#include "model/decoder.h"

namespace finetune {

// The common part of Gemma 3n and 4: norms before and after sublayers and of queries, keys and
// values; the last layers may read the keys and values of earlier ones; each layer may have its
// input (per_layer_input.h).
class GemmaNFamily : public DecoderFamily {
 public:
  void set_defaults(ModelConfig& config) const override;
  [[nodiscard]] ConfigFields fields(ModelConfig& config) const override;
  void complete(ModelConfig& config, const Refuse& refuse) const override;
  [[nodiscard]] std::optional<int64_t> padding_row(const ModelConfig& config,
                                                   const Parameter& parameter) const override;
  [[nodiscard]] bool ignores(const ModelConfig& config, std::string_view name) const override;

 protected:
  [[nodiscard]] bool has_sequence_classifier() const override { return false; }
  [[nodiscard]] bool has_token_classifier() const override { return false; }
  [[nodiscard]] DecoderOptions options(const ModelConfig& config) const override;

  // The layer whose keys and values a layer reads: its own, or the last before the shared layers
  // that has its type.
  [[nodiscard]] static int64_t keys_of(const ModelConfig& config, int64_t layer);
};

}  // namespace finetune
