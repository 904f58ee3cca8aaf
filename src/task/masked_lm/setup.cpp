// SPDX-License-Identifier: MIT

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/text_dataset.h"
#include "task/masked_lm/masked_lm.h"
#include "task/setup_columns.h"

namespace finetune {
namespace {

// As run_mlm.
class MaskedLmSetup final : public TaskSetup {
 public:
  explicit MaskedLmSetup(const SetupContext& context)
      : context_(context),
        args_(context.config.args),
        max_seq_length_(sequence_length(context, 1024)) {
    if (!context.tokenizer.special_tokens().mask) {
      refuse_key(context.config, "tokenizer_name",
                 "the tokenizer names no mask token, which task 'mlm' needs");
    }
    const ModelConfig& model = context.model;
    const int64_t longest_full = (5 + 2 * model.num_random_blocks) * model.block_size;
    if (args_.packing && model.attention_type == "block_sparse" && max_seq_length_ > longest_full) {
      refuse_key(context.config, "packing",
                 "block-sparse attention takes whole batches of one length, which " +
                     std::to_string(max_seq_length_) + " tokens ask for; set max_seq_length to " +
                     std::to_string(longest_full) + " or less, or leave packing out");
    }
    if (needs_split()) split_rows_of_train_file();
  }

  std::shared_ptr<const Dataset> read(Split split) override {
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
    const ColumnNames columns =
        find_split_columns(context_, files, RowTask::kText, LabelUse::kUnused);
    if (split == Split::kTrain && record_.empty()) {
      record_ = {.task = args_.task, .columns = columns};
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

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    MaskedLmOptions options = MaskedLmOptions::from(context_.tokenizer);
    options.masking = MaskingOptions::from(context_.tokenizer, args_.whole_word_mask);
    options.masking.mlm_probability = args_.mlm_probability;
    options.masking.seed = static_cast<uint64_t>(args_.data_seed.value_or(args_.seed));
    options.pad_id = static_cast<int32_t>(context_.model.pad_token_id);
    options.pad_to_max_length = args_.pad_to_max_length;
    if (args_.packing) options.pad_left = false;  // only padding behind a sequence is left out
    options.max_seq_length = max_seq_length_;
    return std::make_shared<MaskedLmCollator>(std::move(options));
  }

  [[nodiscard]] DataRecord record() const override { return record_; }

  [[nodiscard]] int64_t packed_length() const override {
    return args_.packing ? max_seq_length_ : 0;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_language_model(config, static_cast<uint64_t>(args_.seed), device, options);
    auto task = make_masked_lm_task(*model, device,
                                    {.label_smoothing_factor = args_.label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split) const override {
    return {make_masked_lm_metrics(), nullptr};
  }

 private:
  // As run_mlm: without a validation file the first percent of the training rows are held out,
  // whether or not this session evaluates, so that the training data stays the same. A mixture has
  // no first percent: what it evaluates on must be named.
  [[nodiscard]] bool needs_split() const {
    return args_.validation_file.empty() && !args_.train_file.empty() &&
           args_.train_file_weights.empty() && args_.validation_split_percentage > 0 &&
           !args_.streaming;
  }

  void split_rows_of_train_file() {
    int64_t rows = 0;
    show_reading(
        context_.progress, split_files(context_.config, Split::kTrain),
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

  SetupContext context_;
  const TrainingArgs& args_;
  int64_t max_seq_length_;
  RowSplit rows_;
  DataRecord record_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_masked_lm_setup(const SetupContext& context) {
  return std::make_unique<MaskedLmSetup>(context);
}

}  // namespace finetune
