// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "finetune/data/labels.h"
#include "finetune/task/setup.h"

namespace finetune {

// The common part of tasks with labels: how rows are read and padded.
class LabelledSetup : public TaskSetup {
 public:
  // `default_length`: max_seq_length if the keys do not set it.
  LabelledSetup(const SetupContext& context, int64_t default_length);

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override;
  [[nodiscard]] DataRecord record() const final { return record_; }
  [[nodiscard]] int64_t truncation_length() const override { return max_seq_length_; }

 protected:
  // Completes `options` for the split, reads its files with `build` (one of data/'s
  // build_*_dataset) and logs the amount, in `unit`s.
  template <class Options, class Build>
  [[nodiscard]] auto read_rows(Split split, Options options, const Build& build,
                               const std::string& unit = "samples") const {
    static_cast<SampleOptions&>(options) = sample_options(split);
    return read_files(files_of(split), std::move(options), build, unit);
  }
  // The same of these files, with options that are complete.
  template <class Options, class Build>
  [[nodiscard]] auto read_files(const SplitFiles& files, Options options, const Build& build,
                                const std::string& unit) const {
    std::invoke_result_t<Build, const std::vector<std::string>&, const Tokenizer&, const Options&>
        data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = build(files.files, context_.tokenizer, options);
    });
    if (!announce_stream(args(), files.what, *data)) {
      announce(files.what, *data, data->tokens(), unit);
    }
    return data;
  }

  // What fills rows: the model's padding; of a decoder that names none the tokenizer's, or its end
  // of text.
  [[nodiscard]] int64_t padding_id() const;
  // Names it in a decoder's configuration: transformers' classifiers find the last token by it.
  void name_padding(ModelConfig& model) const;
  // The configuration of a model that gives a text one number.
  [[nodiscard]] ModelConfig with_one_score(ModelConfig model) const;
  // If rows of train_file are held out for evaluation: their files, as the validation split.
  [[nodiscard]] SplitFiles files_of(Split split) const;
  // Returns the columns of the split's rows, and keeps those of the training split for record().
  [[nodiscard]] ColumnNames columns_of(Split split, RowTask task);
  // Computes class weights from the training data, for loss_options() and record().
  void weigh_classes(const LabelMap& labels, const Dataset& train_data);
  // Returns the loss options with the class weights: those of weigh_classes(), or, if nothing is
  // trained, those of the keys and of the model's training.
  [[nodiscard]] LossOptions loss_options(const LabelMap& labels) const;
  // Returns the options that all tasks with labels share.
  [[nodiscard]] SampleOptions sample_options(Split split) const;
  [[nodiscard]] const SetupContext& context() const { return context_; }
  [[nodiscard]] const TaskOptions& args() const { return context_.options; }
  [[nodiscard]] int64_t max_seq_length() const { return max_seq_length_; }
  [[nodiscard]] uint64_t seed() const { return static_cast<uint64_t>(args().seed); }

 private:
  [[nodiscard]] bool holds_out_rows() const;
  void split_rows_of_train_file();
  static void announce(const std::string& what, const Dataset& data, int64_t tokens,
                       const std::string& unit);

  SetupContext context_;
  int64_t max_seq_length_;
  DataRecord record_;
  std::optional<RowShare> train_share_;  // if rows are held out, like the next one
  std::optional<RowShare> validation_share_;
};

// Returns the labels of the model; numbered ones if its names are not distinct.
[[nodiscard]] LabelMap labels_of_model(const SetupContext& context);

// Returns the labels in the order of the trained model if both have the same names. Warns if the
// model has other names.
[[nodiscard]] LabelMap in_order_of_model(const SetupContext& context, const LabelMap& labels);

}  // namespace finetune
