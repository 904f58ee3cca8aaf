// SPDX-License-Identifier: MIT
// The fields of config.json that families of encoders share.
#include "finetune/base/text.h"
#include "model/architecture.h"

namespace finetune {

ConfigFields Architecture::fields(ModelConfig& c) const {
  return {{"vocab_size", &c.vocab_size, 1, kMostTokens},
          {"hidden_size", &c.hidden_size, 1, 65536},
          {"num_hidden_layers", &c.num_hidden_layers, 1, 512},
          {"num_attention_heads", &c.num_attention_heads, 1, 1024},
          {"intermediate_size", &c.intermediate_size, 1, 1 << 20},
          {"max_position_embeddings", &c.max_position_embeddings, 4, kLongestSequence},
          {"type_vocab_size", &c.type_vocab_size, 1, 1024},
          {"pad_token_id", &c.pad_token_id, 0, kMostTokens},
          {"bos_token_id", &c.bos_token_id, 0, kMostTokens},
          {"eos_token_id", &c.eos_token_id, 0, kMostTokens},
          {"hidden_dropout_prob", &c.hidden_dropout_prob, 0.0, 0.99},
          {"attention_probs_dropout_prob", &c.attention_probs_dropout_prob, 0.0, 0.99},
          {"initializer_range", &c.initializer_range, 0.0, 10.0},
          {"classifier_dropout", &c.classifier_dropout, 0.0, 0.99},
          {"layer_norm_eps", &c.layer_norm_eps, 0.0, 1.0},
          {"tie_word_embeddings", &c.tie_word_embeddings},
          {"hidden_act", &c.hidden_act}};
}

void Architecture::complete(ModelConfig& config, const Refuse& refuse) const {
  if (config.hidden_size % config.num_attention_heads != 0) {
    refuse("hidden_size " + std::to_string(config.hidden_size) +
           " does not divide by num_attention_heads " + std::to_string(config.num_attention_heads));
  }
  if (config.pad_token_id >= config.vocab_size) {
    refuse("pad_token_id " + std::to_string(config.pad_token_id) + " lies beyond vocab_size " +
           std::to_string(config.vocab_size));
  }
}

}  // namespace finetune
