// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/data/text_dataset.h"
#include "finetune/task/setup.h"

namespace finetune {

// The common part of mlm and clm, as in run_mlm and run_clm: text is read in lines, or joined and
// split into blocks. If there is no validation_file, a part of train_file is held out.
class TextSetup : public TaskSetup {
 public:
  std::shared_ptr<const Dataset> read(Split split) final;
  [[nodiscard]] DataRecord record() const final { return record_; }
  [[nodiscard]] int64_t packed_length() const final { return args_.packing ? max_seq_length_ : 0; }
  [[nodiscard]] int64_t truncation_length() const final {
    return args_.line_by_line ? max_seq_length_ : 0;
  }

 protected:
  explicit TextSetup(const SetupContext& context);
  // Counts the rows of train_file if some are held out. Call it once, after the keys are checked.
  void split_rows_of_train_file();

  [[nodiscard]] const SetupContext& context() const { return context_; }
  [[nodiscard]] const TaskOptions& args() const { return args_; }
  [[nodiscard]] int64_t max_seq_length() const { return max_seq_length_; }

 private:
  // Changes the options of reading for one task.
  virtual void adjust(TextOptions& /*options*/) const {}

  [[nodiscard]] bool needs_split() const;

  SetupContext context_;
  const TaskOptions& args_;
  int64_t max_seq_length_;
  RowSplit rows_;
  DataRecord record_;
};

}  // namespace finetune
