// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/task/queries.h"

namespace finetune {

// Which probabilities an answer has.
enum class Probabilities {
  kUsual,  // as transformers' pipelines
  kTopK,   // of the `top_k` most probable answers (5 unless set)
  kAll,    // of every label or choice
};

// How answers are made. Names and defaults are those of transformers' pipelines; what a task does
// not use is ignored.
struct PredictOptions {
  bool use_cpu = false;
  // Products as an export in int8 computes them (nn/int8_products.h).
  bool int8_products = false;
  int64_t batch_size = 8;             // sequences that the model takes at once
  std::optional<int64_t> top_k = {};  // answers for each text; else 5 in fill-mask, 1 elsewhere
  Probabilities probabilities = Probabilities::kUsual;

  // How many of `answers` a text gets.
  [[nodiscard]] size_t answers_of(size_t answers, int64_t usual) const {
    if (probabilities == Probabilities::kAll) return answers;
    if (probabilities == Probabilities::kTopK) usual = 5;
    return std::min(answers, static_cast<size_t>(top_k.value_or(usual)));
  }

  std::string function_to_apply = "default";       // text classification: sigmoid, softmax, none
  std::string aggregation_strategy = "none";       // token classification: simple, first, ...
  std::vector<std::string> ignore_labels = {"O"};  // token classification
  // Embeddings: texts whose similarity to each text is answered instead of vectors.
  std::vector<std::string> compare = {};
  std::vector<std::string> queries = {};  // of NearestTexts
  // Embeddings: the prompt of the model before each text; unset: none, but of NearestTexts those of
  // queries and documents.
  std::optional<std::string> prompt_name = {};
  int64_t max_answer_len = 15;             // question answering, in tokens
  int64_t max_seq_len = 384;               // question answering: tokens per window
  std::optional<int64_t> doc_stride = {};  // unset: 128, or half a window if that is less
  bool handle_impossible_answer = false;   // question answering: the answer may be ""

  // Text generation; unset options come from the model's generation_config.json or are
  // transformers' defaults. Setting temperature, top_k or top_p turns sampling on unless do_sample
  // is false.
  std::optional<bool> do_sample = {};
  std::optional<int64_t> max_new_tokens = {};  // unset: 256
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::optional<double> repetition_penalty = {};
  int64_t seed = 42;             // of sampling
  bool return_full_text = true;  // the prompt and the continuation; false: only the continuation
  // Answer conversations with the model's chat template, or another one.
  bool chat = false;
  std::optional<std::string> chat_template_path = {};
  std::string chat_template_kwargs = {};  // an object of JSON, or empty
  // Called with each piece of the continuation as it is generated.
  std::function<void(std::string_view piece)> on_text = {};
};

// Answers queries with a trained model, in the formats of transformers' pipelines:
// - fill-mask: a list of {score, token, token_str, sequence}; a list of lists if there are several
//   masks;
// - text classification: a list of {label, score}, best first;
// - token classification: a list of {entity, score, index, word, start, end}, or with an
//   aggregation_strategy of {entity_group, score, word, start, end}; positions count code points;
//   with probabilities each token has `scores`, {label: probability}, best first;
// - question answering: {score, start, end, answer}, a list of them where top_k is above 1, found
//   as run_qa finds them; score is the probability among the best candidates;
// - multiple choice: {label, choice, scores}: the best choice's number and text, and all
//   probabilities; with probabilities a list of {label, choice, score}, best first;
// - embeddings: {embedding}, the vector of the text; or {similarity}, a list of cosines;
// - text generation: a list of one {generated_text}; of a conversation its {messages} with the
//   answer as the last one, in place of an answer that was there.
// A text longer than the model's maximum is an error in fill-mask and text generation, is split
// into windows in question answering, and is truncated elsewhere, which is logged once.
class Predictor {
 public:
  virtual ~Predictor() = default;
  // Returns one answer per query. Throws Error(kData) that starts with the query's position.
  [[nodiscard]] virtual std::vector<nlohmann::ordered_json> answer(
      const std::vector<Query>& queries) = 0;
  // Seconds in the model itself, of all answers so far; nullopt: not measured.
  [[nodiscard]] virtual std::optional<double> model_seconds() const { return std::nullopt; }
};

// Returns the task named as in transformers' pipelines ("token-classification", "ner") or in the
// configuration ("token_classification"). Throws Error(kUsage).
[[nodiscard]] const TaskDescriptor& parse_predict_task(const std::string& name);
// Returns the task of the model in `folder`, by the architectures in its config.json. Throws
// Error(kData).
[[nodiscard]] const TaskDescriptor& find_predict_task(const std::string& folder);

}  // namespace finetune
