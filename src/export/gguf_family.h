// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "finetune/model/model_config.h"

namespace finetune {

// Names of a module: in transformers and in llama.cpp.
using GgufNames = std::map<std::string, std::string, std::less<>>;

// A family in llama.cpp.
struct GgufFamily {
  // Which linear layers may have biases.
  enum class Biases { kNone, kAttention, kAll };

  const char* model_type;
  const char* architecture;  // general.architecture
  // Of the feed-forward network. llama.cpp has one of GELU's formulas, the tanh's.
  const char* activation = "silu";
  Biases biases = Biases::kNone;
  bool is_encoder = false;           // whose files embed, and predict nothing else
  bool permutes = false;             // rows of q_proj and k_proj
  bool adds_one_to_norms = false;    // which are stored without it
  bool has_layer_norms = false;      // instead of RMS norms
  bool has_rope_dimensions = false;  // and vocab_size
  bool rotates_share = false;        // of each head, which rope.dimension_count has
  bool has_llama3_rope = false;      // reads the factors of rope_type llama3
  bool needs_biases = false;         // asks for them
  bool needs_output = false;         // asks for an output layer also where it is shared
  bool has_windows = false;          // and their pattern: which layers have one
  GgufNames others = {};             // that differ from those of most families
};

// Returns nullptr for a family that llama.cpp does not have or whose files cannot be written.
const GgufFamily* find_gguf_family(const ModelConfig& config);

// As find_gguf_family(); throws Error(kData) for a family that is not there.
const GgufFamily& gguf_family(const ModelConfig& config);

// Returns llama.cpp's name of a tensor, "blk.3.ffn_up.weight" of
// "model.layers.3.mlp.up_proj.weight", or an empty text if it has none.
std::string gguf_name(const GgufFamily& family, const std::string& name);

}  // namespace finetune
