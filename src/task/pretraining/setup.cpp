// SPDX-License-Identifier: MIT

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/mixed_pretraining.h"
#include "finetune/data/shard_examples.h"
#include "task/loss/words_task.h"
#include "task/pretraining/pretraining.h"
#include "task/setup/setup_columns.h"

namespace finetune {
namespace {

// Sets up the task as BERT's create_pretraining_data and run_pretraining do together.
class PretrainingSetup final : public TaskSetup {
 public:
  explicit PretrainingSetup(const SetupContext& context)
      : context_(context),
        args_(context_.options),
        max_seq_length_(sequence_length(context, context.model.max_length())) {
    if (args_.use_nsp && !has_next_sentence_head(context.model)) {
      refuse_key(context.options.locations, "use_nsp",
                 "model_type '" + context.model.model_type +
                     "' has no head for the next sentence; set use_nsp: false");
    }
  }

  std::shared_ptr<const Dataset> read(Split split) override {
    FT_CHECK(split != Split::kTest, "nothing is predicted for test_file");
    const SplitFiles files = files_to_read(context_, split);
    const std::vector<std::string> names = expand_files(files.files, files.key);
    const auto shards = std::ranges::count_if(names, is_tf_record);
    if (shards == 0) return read_documents_of(split, files);
    if (shards < std::ssize(names)) {
      refuse_key(context_.options.locations, files.key,
                 "names TFRecord shards and other files; name either shards or documents");
    }
    return read_shards(files);
  }

  [[nodiscard]] std::shared_ptr<const Dataset> mix(
      std::shared_ptr<const MixedDataset> data) const override {
    return std::make_shared<const MixedPretraining>(std::move(data));
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    PaddingOptions options = PaddingOptions::from(context_.tokenizer);
    options.pad_id = static_cast<int32_t>(context_.model.pad_token_id);
    set_lengths(options, context_, max_seq_length_);
    return std::make_shared<PretrainingCollator>(options);
  }

  [[nodiscard]] DataRecord record() const override { return record_; }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    const auto seed = static_cast<uint64_t>(args_.seed);
    const LossOptions loss{.label_smoothing_factor = args_.label_smoothing_factor};
    if (!args_.use_nsp) {
      auto model = make_model(std::nullopt, config, seed, device, options);
      auto task = make_masked_lm_task(*model, device, loss);
      return {std::move(model), std::move(task)};
    }
    auto model = make_model(Head::kPretraining, config, seed, device, options);
    auto task = make_pretraining_task(*model, device, loss);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split) const override {
    return {args_.use_nsp ? make_pretraining_metrics() : make_masked_lm_metrics(), nullptr};
  }

 private:
  [[nodiscard]] std::shared_ptr<const Dataset> read_shards(const SplitFiles& files) {
    ShardOptions options;
    options.key = files.key;
    options.pad_id = static_cast<int32_t>(context_.model.pad_token_id);
    options.vocabulary_limit = context_.model.vocab_size;
    options.max_seq_length = max_seq_length_;
    options.token_types = context_.model.type_vocab_size;
    options.next_sentence = args_.use_nsp;
    options.max_samples = files.max_samples;
    std::shared_ptr<const ShardExamples> data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = std::make_shared<const ShardExamples>(files.files, options);
    });
    log::info(files.what + " data: " + std::to_string(data->size()) + " samples in " +
              std::to_string(data->shards()) + " shards, masked beforehand");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Dataset> read_documents_of(Split split,
                                                                 const SplitFiles& files) {
    ExampleOptions examples = example_options(files);
    if (split == Split::kValidation) examples.dupe_factor = 1;
    DocumentOptions options;
    options.key = files.key;
    options.replace_broken_utf8 = replaces_broken_utf8(args_);
    options.reading = reading_options(args_);
    options.text_column = args_.text_column;
    options.lines_are_documents = args_.line_by_line;
    options.sentence_delimiters = args_.sentence_delimiters;
    options.longest_sentence = examples.longest_sentence();
    options.vocabulary_limit = context_.model.vocab_size;
    options.threads = preprocessing_threads(args_);
    options.cache = context_.cache;
    const ColumnNames columns =
        find_split_columns(context_, files, RowTask::kText, LabelUse::kUnused);
    if (split == Split::kTrain && record_.empty()) {
      record_ = {.task = args_.task, .columns = columns, .reading = reading_options(args_)};
    }
    Documents documents;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      documents = read_documents(files.files, context_.tokenizer, options);
    });
    auto data = std::make_shared<const DocumentExamples>(std::move(documents), examples,
                                                         show_steps(context_.progress));
    log::info(
        files.what + " data: " + std::to_string(data->documents()) + " documents, " +
        std::to_string(data->tokens()) + " tokens, " + std::to_string(data->size()) + " samples" +
        (examples.dupe_factor > 1 ? " (dupe_factor " + std::to_string(examples.dupe_factor) + ")"
                                  : ""));
    return data;
  }

  [[nodiscard]] ExampleOptions example_options(const SplitFiles& files) const {
    ExampleOptions options = ExampleOptions::from(context_.tokenizer, args_.whole_word_mask);
    options.max_seq_length = max_seq_length_;
    options.next_sentence = args_.use_nsp;
    options.short_seq_prob = args_.short_seq_prob;
    options.dupe_factor = args_.dupe_factor;
    options.max_predictions = args_.max_predictions_per_seq;
    options.max_samples = files.max_samples;
    options.masking.mlm_probability = args_.mlm_probability;
    options.masking.seed = static_cast<uint64_t>(args_.data_seed.value_or(args_.seed));
    options.key = files.key;
    return options;
  }

  SetupContext context_;
  const TaskOptions& args_;
  int64_t max_seq_length_;
  DataRecord record_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_pretraining_setup(const SetupContext& context) {
  return std::make_unique<PretrainingSetup>(context);
}

}  // namespace finetune
