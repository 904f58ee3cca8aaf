// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// Arguments of single tasks, other than columns: those of run_mlm, run_glue, run_classification,
// run_swag, run_ner and run_qa, and of BERT's create_pretraining_data. describe() documents the
// keys.
struct TaskArgs {
  double mlm_probability = 0.15;
  bool whole_word_mask = false;
  bool use_nsp = true;
  int64_t dupe_factor = 10;
  double short_seq_prob = 0.1;
  std::optional<int64_t> max_predictions_per_seq;
  std::vector<std::string> sentence_delimiters = {"。", "！", "？", ".", "!", "?"};
  std::optional<std::string> prepare_output_dir;
  int64_t num_shards = 16;
  std::optional<std::string> problem_type;
  std::vector<std::string> metric_name;
  JsonText class_weights;
  bool label_all_tokens = false;
  bool return_entity_level_metrics = false;
  int64_t doc_stride = 128;
  int64_t max_answer_length = 30;
  int64_t n_best_size = 20;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
  bool shuffle_options = true;
  std::optional<bool> calibrate;
  std::string decision_head = "labels";
  std::optional<std::string> decision_template_path;
  JsonText decision_labels;

  static void describe(FieldList& field);

 private:
  static void describe_pretraining(FieldList& field);
};

}  // namespace finetune
