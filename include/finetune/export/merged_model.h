// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/tensor/lazy_tensor.h"

namespace finetune {

// A weight of a merged model.
struct MergedTensor {
  std::string name;  // transformers'
  std::vector<int64_t> shape;
  at::ScalarType stored = at::kFloat;  // the type in the base's file
  // Returns rows [first, first + count) in float32, on the CPU; a tensor without dimensions has one
  // row. One thread at a time.
  std::function<Tensor(int64_t first, int64_t count)> rows;
  bool is_linear = false;  // the matrix of a linear layer of the backbone, which may be quantised
  bool is_stack = false;   // those of several layers, which stay whole
};

// A model as it is deployed: the weights of a folder with its adapter added, as PEFT's
// merge_and_unload() does. Values are read and computed some rows at a time, with one thread, so
// that they are the same for any number of threads.
struct MergedModel {
  std::string folder;  // of the model or the adapter
  std::string base;    // of the base; `folder` without an adapter
  bool has_adapter = false;
  // Without the adapter and quantisation; tie_word_embeddings is false where the adapter changed
  // one of two shared weights.
  ModelConfig config;
  std::optional<Head> head;           // what it predicts; nullopt: words
  std::string architecture;           // "LlamaForCausalLM"
  std::vector<MergedTensor> tensors;  // in transformers' order; shared ones once
  at::ScalarType dtype = at::kFloat;  // the type of most values
  // Of the language model of a folder for images and text: the configuration of the whole (JSON;
  // empty: there is no other part), the names that the folder has for its tensors, and the other
  // tensors, which stay as they are.
  std::string whole_config = {};
  std::map<std::string, std::string> names_in_whole = {};
  std::vector<MergedTensor> other_tensors = {};

  [[nodiscard]] const MergedTensor* find(const std::string& name) const;
};

// To which values of the base an adapter is added.
enum class MergeBase {
  kOriginal,  // those of its folder
  // Those that the adapter was trained on: where its run kept the base in four bits, what the codes
  // mean.
  kTrained,
};

// Opens a folder that holds a model or an adapter with its base. `head`: what the model predicts;
// nullopt: words. Throws Error(kData) for weights that are missing or do not fit.
[[nodiscard]] MergedModel merge_model(const std::string& folder, std::optional<Head> head,
                                      MergeBase base = MergeBase::kOriginal);

// The tensor in this type, each value rounded once.
[[nodiscard]] LazyTensor in_type(const MergedTensor& tensor, at::ScalarType type);

}  // namespace finetune
