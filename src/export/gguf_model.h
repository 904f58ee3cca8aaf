// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "export/gguf_file.h"
#include "finetune/export/merged_model.h"

namespace finetune {

// What llama.cpp knows of a model apart from its tokenizer.
struct GgufModel {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  // Values that the metadata have instead of a tensor, by transformers' names.
  std::map<std::string, Tensor> in_metadata = {};
};

// Names, shapes and hyperparameters as llama.cpp's converter writes them: query and key rows in the
// order of its rotation for llama and those like it, norms of gemma with their one, GPT-2's
// matrices as [out, in], factors of scaled rotary positions as tensors. Matrices have `type`, where
// their rows are whole blocks (else float16); norms, biases and positions stay float32. Throws
// Error(kData) for a family or a field that llama.cpp has not.
[[nodiscard]] GgufModel gguf_model(const MergedModel& model, GgmlType type);

}  // namespace finetune
