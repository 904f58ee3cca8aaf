// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <string_view>

#include "finetune/nn/lora.h"
#include "finetune/params/weight.h"

namespace finetune::nn {

// Registers the parameters that parts create: a list in the order of creation, which is the order
// in which transformers numbers them, and the prefix of their names in a checkpoint. Nothing is
// allocated, which gives the names and shapes of any model for free; a ParameterStore then
// allocates each parameter in its format.
class Scope {
 public:
  // `list` must outlive the scope; `lora`, which says where an adapter is, the making of parts.
  explicit Scope(Weights& list, LoraTargets* lora = nullptr) : list_(&list), lora_(lora) {}

  // Returns the scope of a child: "encoder" / "layer" / 0 is the prefix "encoder.layer.0.".
  [[nodiscard]] Scope operator/(std::string_view name) const;
  [[nodiscard]] Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  // The same scope for the output layer of a language model, which has no adapter.
  [[nodiscard]] Scope of_output() const;
  // The same scope, whose layers have no adapter.
  [[nodiscard]] Scope without_adapters() const;
  // That of a linear layer's matrix.
  [[nodiscard]] ParameterRole role_of_matrix() const {
    return is_output_ ? ParameterRole::kOther : ParameterRole::kLinear;
  }
  // The adapter of the linear layer [out, in] in this scope, appended to the list; nullopt: none.
  [[nodiscard]] std::optional<LoraTerm> lora(int64_t inputs, int64_t outputs) const;
  // What the adapter of a parameter of this scope is, which stacks matrices and has this name in
  // transformers.
  [[nodiscard]] std::optional<LoraSettings> lora_of_parameter(std::string_view name) const;
  // The adapter of `count` matrices [out, in] in this scope: A [count r, in], B [out, r count].
  [[nodiscard]] LoraTerm lora_of_stack(const LoraSettings& settings, int64_t count, int64_t inputs,
                                       int64_t outputs) const;
  // That of the embedding [rows, columns] in this scope.
  [[nodiscard]] std::optional<LoraTerm> lora_of_embedding(int64_t rows, int64_t columns) const;

  // Appends a parameter to the list.
  [[nodiscard]] Weight parameter(std::string_view name, c10::IntArrayRef sizes,
                                 ParameterRole role = ParameterRole::kOther) const;
  // A parameter of this scope that is in the list already.
  [[nodiscard]] std::optional<Weight> made(std::string_view name) const;

 private:
  // The scope's name without the dot at its end.
  [[nodiscard]] std::string module() const { return prefix_.substr(0, prefix_.size() - 1); }
  // Throws LoraError if an adapter of this rank has as many values as the weight.
  void check_rank(int64_t rank, c10::IntArrayRef sizes) const;

  Weights* list_;
  LoraTargets* lora_;
  bool is_output_ = false;
  std::string prefix_;
};

}  // namespace finetune::nn
