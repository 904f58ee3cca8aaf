// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>

#include "finetune/data/question_answering_dataset.h"
#include "finetune/task/prediction_files.h"
#include "task/predict/worst_samples.h"
#include "task/question_answering/answers.h"

namespace finetune {

// Writes STAGE_predictions.json, STAGE_nbest_predictions.json and, with version_2_with_negative,
// STAGE_null_odds.json, byte for byte as run_qa prints the same numbers. `stage` is "eval" or
// "predict". What make_question_answering_metrics() finds is to be handed to take(). Requires: no
// id is taken twice. Where a question has an answer, worst_samples.json has those of the lowest F1,
// and of equal ones those whose wrong answer is the most probable.
class AnswerFiles final : public PredictionFiles {
 public:
  AnswerFiles(std::string stage, bool version_2_with_negative)
      : stage_(std::move(stage)), has_odds_(version_2_with_negative) {}

  void take(const Answer& answer, const Question& question);
  void add(const Batch& /*batch*/, const Outputs& /*outputs*/) override {}
  void write(FileSystem& files, const std::string& output_dir) const override;

 private:
  // Builds a JSON object with the indentation of Python's indent=4.
  class ObjectText {
   public:
    void add(const std::string& key, const std::string& value);
    [[nodiscard]] std::string finish() const;

   private:
    std::string text_;
  };

  void rate(const Answer& answer, const Question& question);

  std::string stage_;
  bool has_odds_;
  ObjectText predictions_, n_best_, null_odds_;
  WorstSamples worst_{"f1"};
  int64_t questions_ = 0;
  bool knows_answers_ = false;  // else the file has no answers at all
};

}  // namespace finetune
