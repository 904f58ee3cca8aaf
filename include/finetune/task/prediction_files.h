// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/data/batch.h"
#include "finetune/data/labels.h"
#include "finetune/task/answers.h"
#include "finetune/task/task.h"

namespace finetune {

class TokenClassificationDataset;

// What a model says of a file's samples, as transformers' run_* scripts write it. Fed during one
// pass over the data, in its order; keeps the text of the files alone, never logits.
class PredictionFiles {
 public:
  virtual ~PredictionFiles() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Writes the files into the folder, which is made where it is missing: each whole or not at all.
  virtual void write(FileSystem& files, const std::string& output_dir) const = 0;
};

// predict_results.txt of run_glue and run_classification: "index<TAB>prediction" and a line for
// each sample: the label's name, the list of the names whose logit is above 0 (multi label, as
// Python prints lists), or a number with three decimals (a list of them where a sample has
// several). `labels` are the names of the classes in order; not used in regression.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_classification_files(
    ProblemType problem, std::vector<std::string> labels);

// The same file with the number of the best choice; run_swag writes none.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_multiple_choice_files();

// predictions.txt of run_ner: a line for each sample with the labels of its tokens that have one
// in the data, joined by spaces. Where a sample's labels are not known: of each word's first token.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels);

// STAGE_predictions.json, STAGE_nbest_predictions.json and, with version_2_with_negative,
// STAGE_null_odds.json, byte for byte as run_qa prints the same numbers. `stage` is "eval" or
// "predict". What make_question_answering_metrics() finds is to be handed to take(). Requires: no
// id is taken twice.
class AnswerFiles final : public PredictionFiles {
 public:
  AnswerFiles(std::string stage, bool version_2_with_negative)
      : stage_(std::move(stage)), has_odds_(version_2_with_negative) {}

  void take(const Answer& answer);
  void add(const Batch& /*batch*/, const Outputs& /*outputs*/) override {}
  void write(FileSystem& files, const std::string& output_dir) const override;

 private:
  // A JSON object in the making, indented as Python does with indent=4.
  class ObjectText {
   public:
    void add(const std::string& key, const std::string& value);
    [[nodiscard]] std::string finish() const;

   private:
    std::string text_;
  };

  std::string stage_;
  bool has_odds_;
  ObjectText predictions_, n_best_, null_odds_;
};

}  // namespace finetune
