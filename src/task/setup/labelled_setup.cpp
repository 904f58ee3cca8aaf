// SPDX-License-Identifier: MIT
#include "task/setup/labelled_setup.h"

#include <cstdio>
#include <set>

#include "finetune/base/log.h"
#include "finetune/data/data_files.h"
#include "task/setup/class_weighing.h"
#include "task/setup/setup_columns.h"

namespace finetune {

LabelledSetup::LabelledSetup(const SetupContext& context, int64_t default_length)
    : context_(context), max_seq_length_(sequence_length(context, default_length)) {
  if (holds_out_rows()) split_rows_of_train_file();
}

// The run_* scripts of labelled tasks hold nothing out, so the default of run_mlm does not apply.
bool LabelledSetup::holds_out_rows() const {
  return args().validation_file.empty() && !args().train_file.empty() &&
         args().train_file_weights.empty() && args().train_file_sets.empty() && !args().streaming &&
         context_.options.locations.is_set("validation_split_percentage") &&
         args().validation_split_percentage > 0;
}

// The held-out rows are drawn by the seed, because files are often sorted by label.
void LabelledSetup::split_rows_of_train_file() {
  int64_t rows = 0;
  show_reading(
      context_.progress, split_files(context_.options, Split::kTrain),
      [&](const std::function<void(double)>& progress) {
        rows = count_rows(args().train_file, "train_file", context_.cache, progress,
                          reading_options(args()));
      },
      "count rows");
  const RowSplit split = split_rows(rows, args().validation_split_percentage);
  train_share_ = {.total = rows, .seed = seed(), .positions = split.train};
  validation_share_ = {.total = rows, .seed = seed(), .positions = split.validation};
}

SplitFiles LabelledSetup::files_of(Split split) const {
  if (split != Split::kValidation || !validation_share_) return files_to_read(context_, split);
  SplitFiles files = files_to_read(context_, Split::kTrain);
  files.max_samples = args().max_eval_samples;
  files.what = "evaluation";
  return files;
}

int64_t LabelledSetup::padding_id() const {
  const ModelConfig& model = context_.model;
  if (!is_causal(model) || model.decoder.pad_token_id) return model.pad_token_id;
  const SpecialTokens& special = context_.tokenizer.special_tokens();
  return (special.pad ? special.pad : special.eos)->id;
}

void LabelledSetup::name_padding(ModelConfig& model) const {
  if (is_causal(model)) model.decoder.pad_token_id = model.pad_token_id = padding_id();
}

ModelConfig LabelledSetup::with_one_score(ModelConfig model) const {
  if (model.id2label.size() != 1) model.id2label = {"LABEL_0"};
  name_padding(model);
  return model;
}

// Rows of decoders end in padding: a token before the text would have a position.
std::shared_ptr<const Collator> LabelledSetup::make_collator() const {
  PaddingOptions options =
      is_causal(context_.model) ? PaddingOptions() : PaddingOptions::from(context_.tokenizer);
  options.pad_id = static_cast<int32_t>(padding_id());
  set_lengths(options, context_, max_seq_length_);
  return std::make_shared<PaddingCollator>(options);
}

ColumnNames LabelledSetup::columns_of(Split split, RowTask task) {
  const LabelUse labels = split == Split::kTest ? LabelUse::kOptional : LabelUse::kRequired;
  const ColumnNames columns = find_split_columns(context_, files_of(split), task, labels);
  // For a mixture these are the columns of the first entry.
  if (split == Split::kTrain && record_.empty()) {
    record_ = {.task = args().task, .columns = columns, .reading = reading_options(args())};
  }
  return columns;
}

void LabelledSetup::weigh_classes(const LabelMap& labels, const Dataset& train_data) {
  record_.class_weights = find_class_weights(context_, labels, &train_data);
  record_.task = args().task;
  if (record_.class_weights.empty()) return;
  std::string list;
  for (size_t i = 0; i < record_.class_weights.size(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4g", record_.class_weights[i]);
    list += (i == 0 ? "'" : ", '") + labels.name(static_cast<int64_t>(i)) + "' " + number;
  }
  log::info("class weights: " + list);
}

LossOptions LabelledSetup::loss_options(const LabelMap& labels) const {
  return {.label_smoothing_factor = args().label_smoothing_factor,
          .class_weights = record_.task.empty() ? find_class_weights(context_, labels, nullptr)
                                                : record_.class_weights};
}

SampleOptions LabelledSetup::sample_options(Split split) const {
  const SplitFiles files = files_of(split);
  SampleOptions options;
  if (split != Split::kTest) {
    options.share = split == Split::kTrain ? train_share_ : validation_share_;
  }
  options.key = files.key;
  options.replace_broken_utf8 = replaces_broken_utf8(args());
  options.reading = reading_options(args());
  options.max_samples = files.max_samples;
  options.max_seq_length = max_seq_length_;
  options.vocabulary_limit = context_.model.vocab_size;
  options.labels_required = split != Split::kTest;
  options.threads = preprocessing_threads(args());
  options.cache = context_.cache;
  options.stream = stream_options(context_, split, max_seq_length_);
  return options;
}

void LabelledSetup::announce(const std::string& what, const Dataset& data, int64_t tokens,
                             const std::string& unit) {
  const std::string choices =
      data.choices() > 1 ? " of " + std::to_string(data.choices()) + " choices" : "";
  log::info(what + " data: " + std::to_string(data.size()) + " " + unit + choices + ", " +
            std::to_string(tokens) + " tokens");
}

LabelMap labels_of_model(const SetupContext& context) {
  const std::vector<std::string>& names = context.model.id2label;
  const std::set<std::string> distinct(names.begin(), names.end());
  if (distinct.size() == names.size()) return LabelMap(names, "config.json: id2label");
  log::warning("config.json: id2label has a name twice; the labels go by their numbers");
  return LabelMap::numbered(static_cast<int64_t>(names.size()));
}

LabelMap in_order_of_model(const SetupContext& context, const LabelMap& labels) {
  const LabelMap of_model = labels_of_model(context);
  LabelMap ordered = labels.in_order_of(of_model.names());
  if (!(ordered == of_model) && !of_model.is_numbered()) {
    log::warning("the model was trained with the labels " + of_model.list() + "; its head learns " +
                 labels.list() + " from scratch");
  }
  return ordered;
}

}  // namespace finetune
