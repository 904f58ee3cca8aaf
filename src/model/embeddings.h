// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/model/model.h"
#include "finetune/nn/embedding.h"
#include "finetune/nn/norm.h"

namespace finetune {

// Returns [B, T, C], or [1, C] if every token is of type 0.
[[nodiscard]] nn::Value embed_types(const nn::Embedding& table, const ModelInput& input,
                                    nn::Pass& p);

// Embeds tokens, token types and positions. A family's class defines where positions begin and
// whether the norm or dropout comes first.
class Embeddings {
 public:
  virtual ~Embeddings() = default;
  // input_ids [B, T] -> [B, T, C] in float32; [1, N, C] if the pass has a layout
  virtual nn::Value operator()(const ModelInput& input, nn::Pass& p) const = 0;
  [[nodiscard]] virtual const Weight& word_embedding() const = 0;  // [V, C]
};

// e = Dropout(LN(word[id] + type[t] + position[p])), or without LN; p counts only tokens that are
// not padding and starts after pad_token_id (fairseq's make_positions).
class RobertaEmbeddings final : public Embeddings {
 public:
  RobertaEmbeddings(const nn::Scope& scope, const ModelConfig& config, bool has_types = true,
                    bool has_norm = true);
  nn::Value operator()(const ModelInput& input, nn::Pass& p) const override;
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }

 private:
  int64_t padding_id_;
  double dropout_;
  // In transformers' order, which decides the order of the optimizer's state in optimizer.pt.
  nn::Embedding words_;
  std::optional<nn::Embedding> types_, positions_;
  std::optional<nn::LayerNorm> norm_;
};

// What a family's embeddings have besides words.
struct EmbeddingTables {
  bool types = true, positions = true;
  bool positions_come_first = false;  // the order of the sum
  bool zeroes_padding = false;        // between the norm and dropout
  int64_t tasks = 0;                  // rows of "task_type_embeddings", of which the first is used
};

// e = Dropout(LN(word[id] + type[t] + position[p])); p counts all tokens from 0 on.
class BertEmbeddings : public Embeddings {
 public:
  BertEmbeddings(const nn::Scope& scope, const ModelConfig& config,
                 const EmbeddingTables& tables = {});
  nn::Value operator()(const ModelInput& input, nn::Pass& p) const override;
  [[nodiscard]] const Weight& word_embedding() const override { return words_.weight(); }

 protected:
  // Returns word_scale word[id] + type[t] + position[p]: [B, T, C].
  [[nodiscard]] nn::Value sum(const ModelInput& input, double word_scale, nn::Pass& p) const;
  [[nodiscard]] nn::Value drop(nn::Value x, nn::Pass& p) const;
  [[nodiscard]] const nn::LayerNorm& norm() const { return *norm_; }

 private:
  int64_t padding_id_;
  double dropout_;
  EmbeddingTables tables_;
  nn::Embedding words_;
  std::optional<nn::Embedding> positions_, types_, tasks_;
  std::optional<nn::LayerNorm> norm_;
};

// e = LN(Dropout(s word[id] + type[t] + position[p])) with s = sqrt(C) if the configuration asks
// for it, else 1. Unlike in BERT, dropout comes before the norm.
class BigBirdEmbeddings final : public BertEmbeddings {
 public:
  BigBirdEmbeddings(const nn::Scope& scope, const ModelConfig& config);
  nn::Value operator()(const ModelInput& input, nn::Pass& p) const override;

 private:
  double word_scale_;
};

}  // namespace finetune
