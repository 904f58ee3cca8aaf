// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "finetune/data/labels.h"
#include "finetune/task/setup.h"

namespace finetune {

// What the tasks that learn from labels share: rows are read and padded alike.
class LabelledSetup : public TaskSetup {
 public:
  // `default_length`: max_seq_length where the keys do not say it.
  LabelledSetup(const SetupContext& context, int64_t default_length);

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const final;
  [[nodiscard]] DataRecord record() const final { return record_; }

 protected:
  // Completes `options` for the split, reads its files with `build` (one of data/'s
  // build_*_dataset) and prints how much was read, in `unit`s.
  template <class Options, class Build>
  [[nodiscard]] auto read_rows(Split split, Options options, const Build& build,
                               const std::string& unit = "samples") const {
    const SplitFiles files = files_to_read(context_, split);
    static_cast<SampleOptions&>(options) = sample_options(split);
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

  // The columns of the split's rows; those of the training are kept for record().
  [[nodiscard]] ColumnNames columns_of(Split split, RowTask task);
  // Finds the weights of the classes in the training data, for loss_options() and record().
  void weigh_classes(const LabelMap& labels, const Dataset& train_data);
  // With the weights of the classes: those of weigh_classes(), or where nothing is trained of the
  // keys and the model's training.
  [[nodiscard]] LossOptions loss_options(const LabelMap& labels) const;
  // What is the same for all labelled tasks.
  [[nodiscard]] SampleOptions sample_options(Split split) const;
  [[nodiscard]] const SetupContext& context() const { return context_; }
  [[nodiscard]] const TrainingArgs& args() const { return context_.config.args; }
  [[nodiscard]] uint64_t seed() const { return static_cast<uint64_t>(args().seed); }

 private:
  static void announce(const std::string& what, const Dataset& data, int64_t tokens,
                       const std::string& unit);

  SetupContext context_;
  int64_t max_seq_length_;
  DataRecord record_;
};

// The model's own labels; numbered ones where its names do not tell them apart.
[[nodiscard]] LabelMap labels_of_model(const SetupContext& context);

// The labels in the order of a trained model's where those are the same names; a warning where the
// model's names say something else.
[[nodiscard]] LabelMap in_order_of_model(const SetupContext& context, const LabelMap& labels);

}  // namespace finetune
