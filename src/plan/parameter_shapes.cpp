// SPDX-License-Identifier: MIT
// C hidden, V vocabulary, L labels.
#include "finetune/plan/parameter_shapes.h"

namespace finetune {
namespace {

class Shapes {
 public:
  Shapes(const ModelConfig& config, std::optional<Head> head)
      : config_(config), head_(head), hidden_(config.hidden_size) {
    is_big_bird_ = config.model_type == "big_bird";
    is_roberta_ = config.model_type.ends_with("roberta");
    encoder_ = is_roberta_ ? "roberta." : "bert.";
  }

  std::vector<ParameterShape> take() {
    add_embeddings();
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      add_layer(encoder_ + "encoder.layer." + std::to_string(i) + ".");
    }
    add_pooler();
    if (predicts_words(head_)) {
      add_lm_head();
      if (head_) add_linear("cls.seq_relationship", 2, hidden_);
    } else {
      add_head(*head_);
    }
    return std::move(shapes_);
  }

 private:
  void add(const std::string& name, std::vector<int64_t> sizes) {
    shapes_.push_back({name, std::move(sizes)});
  }
  void add_linear(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias = true) {
    add(name + ".weight", {outputs, inputs});
    if (has_bias) add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", {hidden_});
    add(name + ".bias", {hidden_});
  }

  void add_embeddings() {
    const std::string prefix = encoder_ + "embeddings.";
    add(prefix + "word_embeddings.weight", {config_.vocab_size, hidden_});
    add(prefix + "position_embeddings.weight", {config_.max_position_embeddings, hidden_});
    add(prefix + "token_type_embeddings.weight", {config_.type_vocab_size, hidden_});
    add_norm(prefix + "LayerNorm");
  }

  void add_layer(const std::string& prefix) {
    for (const char* name : {"query", "key", "value"}) {
      add_linear(prefix + "attention.self." + name, hidden_, hidden_, config_.use_bias);
    }
    add_linear(prefix + "attention.output.dense", hidden_, hidden_);
    add_norm(prefix + "attention.output.LayerNorm");
    add_linear(prefix + "intermediate.dense", config_.intermediate_size, hidden_);
    add_linear(prefix + "output.dense", hidden_, config_.intermediate_size);
    add_norm(prefix + "output.LayerNorm");
  }

  void add_pooler() {
    if (is_big_bird_) {
      if (head_ != Head::kQuestionAnswering) add_linear(encoder_ + "pooler", hidden_, hidden_);
    } else if (head_ == Head::kPretraining || head_ == Head::kMultipleChoice ||
               (!is_roberta_ && head_ == Head::kSequenceClassification)) {
      add_linear(encoder_ + "pooler.dense", hidden_, hidden_);
    }
  }

  void add_lm_head() {
    const std::string prefix = is_roberta_ ? "lm_head." : "cls.predictions.";
    add(prefix + "bias", {config_.vocab_size});
    add_linear(prefix + (is_roberta_ ? "dense" : "transform.dense"), hidden_, hidden_);
    add_norm(prefix + (is_roberta_ ? "layer_norm" : "transform.LayerNorm"));
    if (!config_.tie_word_embeddings) add_linear(prefix + "decoder", config_.vocab_size, hidden_);
  }

  void add_head(Head head) {
    const auto labels = static_cast<int64_t>(config_.id2label.size());
    switch (head) {
      case Head::kPretraining:
        return;
      case Head::kSequenceClassification:
        if (!is_roberta_ && !is_big_bird_) return add_linear("classifier", labels, hidden_);
        add_linear("classifier.dense", hidden_, hidden_);
        return add_linear("classifier.out_proj", labels, hidden_);
      case Head::kMultipleChoice:
        return add_linear("classifier", 1, hidden_);
      case Head::kTokenClassification:
        return add_linear("classifier", labels, hidden_);
      case Head::kQuestionAnswering:
        if (!is_big_bird_) return add_linear("qa_outputs", 2, hidden_);
        add_linear("qa_classifier.intermediate.dense", config_.intermediate_size, hidden_);
        add_linear("qa_classifier.output.dense", hidden_, config_.intermediate_size);
        add_norm("qa_classifier.output.LayerNorm");
        return add_linear("qa_classifier.qa_outputs", 2, hidden_);
    }
  }

  const ModelConfig& config_;
  std::optional<Head> head_;
  int64_t hidden_;
  bool is_big_bird_ = false;
  bool is_roberta_ = false;
  std::string encoder_;
  std::vector<ParameterShape> shapes_;
};

}  // namespace

int64_t ParameterShape::count() const {
  int64_t values = 1;
  for (const int64_t size : sizes) values *= size;
  return values;
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config, std::optional<Head> head) {
  return Shapes(config, head).take();
}

}  // namespace finetune
