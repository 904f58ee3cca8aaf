// SPDX-License-Identifier: MIT
#include "task/setup/setup_columns.h"

#include "finetune/base/log.h"
#include "finetune/data/data_files.h"

namespace finetune {

ColumnNames named_columns(const TaskOptions& args) {
  return {.text_column = args.text_column,
          .text_pair_column = args.text_pair_column,
          .context_column = args.context_column,
          .choice_columns = args.choice_columns,
          .label_column = args.label_column,
          .text_columns = args.text_columns};
}

namespace {

// Warns if files of a classifier are read as plain text because the key 'task' is missing, which
// run_glue and similar scripts do not have.
void warn_of_unused_labels(const SetupContext& context, const SplitFiles& files,
                           const RowOptions& options, const ColumnNames& found) {
  if (context.options.locations.is_set("task") || !found.text_column) return;
  const ColumnSearch search{.task = RowTask::kSequenceClassification,
                            .named = {.text_column = found.text_column},
                            .labels = LabelUse::kOptional};
  const auto label = find_columns(files.files, options, search).names.label_column;
  if (!label) return;
  log::warning("'task' is not set, so that a masked language model is trained (mlm) and column '" +
               *label + "' is not used; for a classifier set task: sequence_classification, " +
               "multiple_choice or token_classification");
}

}  // namespace

ColumnNames find_split_columns(const SetupContext& context, const SplitFiles& files, RowTask task,
                               LabelUse labels) {
  RowOptions options;
  options.key = files.key;
  options.replace_broken_utf8 = replaces_broken_utf8(context.options);
  options.reading = reading_options(context.options);
  const ColumnSearch search{.task = task,
                            .named = named_columns(context.options),
                            .trained = context.trained.columns,
                            .labels = labels};
  const FoundColumns found = find_columns(files.files, options, search);
  if (!found.warning.empty()) log::warning(found.warning);
  if (!found.report.empty()) log::info(found.report);
  if (task == RowTask::kText && files.key == "train_file") {
    warn_of_unused_labels(context, files, options, found.names);
  }
  return found.names;
}

}  // namespace finetune
