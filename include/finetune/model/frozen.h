// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace finetune {

// The parameters that are not trained, chosen by patterns (the key freeze). A pattern is a regular
// expression (NamePattern) for one or more whole components of a parameter's name: "embeddings",
// "encoder.layer.0" and "layer.[0-5]" choose everything below these modules, "LayerNorm.weight" the
// weight of every norm. Thread-safe.
class FrozenParameters {
 public:
  // Throws Error(kConfig) naming a pattern that is no regular expression.
  explicit FrozenParameters(const std::vector<std::string>& patterns);
  // "roberta.encoder.layer.0.attention.self.query.weight"
  [[nodiscard]] bool has(const std::string& parameter) const;
  // Throws Error(kConfig) if a pattern chooses none of the parameters, or if all are chosen.
  void check(const std::vector<std::string>& parameters) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace finetune
