// SPDX-License-Identifier: MIT
#include "task/setup/text_setup.h"

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "task/setup/setup_columns.h"

namespace finetune {

TextSetup::TextSetup(const SetupContext& context)
    : context_(context), args_(context_.options), max_seq_length_(sequence_length(context, 1024)) {}

std::shared_ptr<const Dataset> TextSetup::read(Split split) {
  FT_CHECK(split != Split::kTest, "nothing is predicted for test_file");
  const bool held_out = split == Split::kValidation && args_.validation_file.empty();
  SplitFiles files = files_to_read(context_, held_out ? Split::kTrain : split);
  if (held_out) files.what = "evaluation";
  TextOptions options;
  options.line_by_line = args_.line_by_line;
  options.max_seq_length = max_seq_length_;
  options.text_column = args_.text_column;
  options.vocabulary_limit = context_.model.vocab_size;
  options.position_limit = context_.model.max_length();
  options.threads = preprocessing_threads(args_);
  options.cache = context_.cache;
  options.key = files.key;
  options.replace_broken_utf8 = replaces_broken_utf8(args_);
  options.reading = reading_options(args_);
  options.max_samples = held_out ? args_.max_eval_samples : files.max_samples;
  options.stream = stream_options(context_, split, max_seq_length_);
  options.rows = split == Split::kTrain ? rows_.train : rows_.validation;
  adjust(options);
  const ColumnNames columns =
      find_split_columns(context_, files, RowTask::kText, LabelUse::kUnused);
  if (split == Split::kTrain && record_.empty()) {
    record_ = {.task = args_.task, .columns = columns, .reading = reading_options(args_)};
  }
  std::shared_ptr<const SequenceDataset> data;
  show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
    options.progress = progress;
    data = build_text_dataset(files.files, context_.tokenizer, options);
  });
  if (announce_stream(args_, files.what, *data)) return data;
  log::info(files.what + " data: " + std::to_string(data->size()) + " samples, " +
            std::to_string(data->tokens()) + " tokens");
  return data;
}

// As in the scripts: without a validation file the first validation_split_percentage percent of the
// training rows are held out, whether or not this session evaluates, so that the training data
// stays the same. For a mixture the validation file must be given.
bool TextSetup::needs_split() const {
  return args_.validation_file.empty() && !args_.train_file.empty() &&
         args_.train_file_weights.empty() && args_.validation_split_percentage > 0 &&
         !args_.streaming;
}

void TextSetup::split_rows_of_train_file() {
  if (!needs_split()) return;
  int64_t rows = 0;
  show_reading(
      context_.progress, split_files(context_.options, Split::kTrain),
      [&](const std::function<void(double)>& progress) {
        rows = count_rows(args_.train_file, "train_file", context_.cache, progress,
                          reading_options(args_));
      },
      "count rows");
  const bool holds_out_a_row = rows * args_.validation_split_percentage > 50;
  if (args_.do_eval || holds_out_a_row) {
    rows_ = split_rows(rows, args_.validation_split_percentage);
  }
}

}  // namespace finetune
