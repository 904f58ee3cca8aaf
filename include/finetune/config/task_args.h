// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace finetune {

class FieldList;

// What single tasks have beyond the columns of their data: the arguments of run_mlm, run_glue,
// run_classification, run_swag, run_ner and run_qa. Meanings: describe().
struct TaskArgs {
  double mlm_probability = 0.15;
  bool whole_word_mask = false;
  std::optional<std::string> problem_type;
  std::optional<std::string> metric_name;
  bool label_all_tokens = false;
  bool return_entity_level_metrics = false;
  int64_t doc_stride = 128;
  int64_t max_answer_length = 30;
  int64_t n_best_size = 20;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;

  static void describe(FieldList& field);
};

}  // namespace finetune
