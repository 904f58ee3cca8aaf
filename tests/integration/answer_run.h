// SPDX-License-Identifier: MIT
#pragma once

#include <fstream>
#include <functional>
#include <string>

#include "integration/tiny_run.h"

namespace finetune::testing {

// A tiny new decoder on 72 questions, each with a right and a wrong answer.
class AnswerRun : public TinyRun {
 public:
  // `row_of`: what a line of answers-train.jsonl becomes (question, answer, wrong).
  AnswerRun(const std::function<Json(const Json& line)>& row_of, const Keys& keys) {
    std::ifstream answers(kTasks + "answers-train.jsonl");
    std::string rows;
    for (std::string line; std::getline(answers, line);) {
      rows += row_of(parse_json(line, "")).dump() + "\n";
    }
    folder().write("rows.jsonl", rows);
    Keys all = {{"model_type", "llama"},
                {"tokenizer_name", source_dir() + "/tests/fixtures/parity/tasks/llama/tokenizer"},
                {"config_overrides",
                 "{num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, "
                 "hidden_size: 32, intermediate_size: 64, max_position_embeddings: 64}"},
                {"max_seq_length", "48"},
                {"train_file", folder() / "rows.jsonl"},
                {"validation_file", folder() / "rows.jsonl"},
                {"max_steps", "12"},
                {"eval_steps", "6"},
                {"save_steps", "5"}};
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }
};

}  // namespace finetune::testing
