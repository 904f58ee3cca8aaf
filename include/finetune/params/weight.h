// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A parameter as the parts of a model hold it: which one it is, and its logical shape. It has no
// memory: a ParameterStore has the values of all weights of a list, in their storage formats, whose
// tensors may have other shapes. Copies are the same weight.
class Weight {
 public:
  // No weight: the bias of a layer without one.
  Weight() = default;
  // `id`: its index in the list of the model's weights.
  Weight(size_t id, std::string name, c10::IntArrayRef sizes, ParameterRole role)
      : info_(std::make_shared<const Info>(Info{id, std::move(name), sizes.vec(), role})) {}

  [[nodiscard]] bool defined() const { return info_ != nullptr; }
  // The others require: defined().
  [[nodiscard]] size_t id() const { return info_->id; }
  // As in the checkpoint: "roberta.embeddings.word_embeddings.weight".
  [[nodiscard]] const std::string& name() const { return info_->name; }
  [[nodiscard]] ParameterRole role() const { return info_->role; }
  [[nodiscard]] c10::IntArrayRef sizes() const { return info_->sizes; }
  [[nodiscard]] int64_t dim() const { return static_cast<int64_t>(info_->sizes.size()); }
  [[nodiscard]] int64_t size(int64_t dimension) const {
    return info_->sizes[static_cast<size_t>(dimension < 0 ? dimension + dim() : dimension)];
  }
  [[nodiscard]] int64_t numel() const {
    int64_t values = 1;
    for (const int64_t size : info_->sizes) values *= size;
    return values;
  }

  friend bool operator==(const Weight& a, const Weight& b) { return a.info_ == b.info_; }

 private:
  struct Info {
    size_t id;
    std::string name;
    std::vector<int64_t> sizes;
    ParameterRole role;
  };
  std::shared_ptr<const Info> info_;
};

// All weights of a model in the order in which transformers numbers them; the index is the id.
using Weights = std::vector<Weight>;

}  // namespace finetune
