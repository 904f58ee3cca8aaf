// SPDX-License-Identifier: MIT
#include "task/setup_columns.h"

#include "finetune/base/log.h"
#include "finetune/data/data_files.h"

namespace finetune {

ColumnNames named_columns(const TrainingArgs& args) {
  return {.text_column = args.text_column,
          .text_pair_column = args.text_pair_column,
          .context_column = args.context_column,
          .choice_columns = args.choice_columns,
          .label_column = args.label_column};
}

ColumnNames find_split_columns(const SetupContext& context, const SplitFiles& files, RowTask task,
                               LabelUse labels) {
  RowOptions options;
  options.key = files.key;
  options.replace_broken_utf8 = replaces_broken_utf8(context.config.args);
  options.reading = reading_options(context.config.args);
  const ColumnSearch search{.task = task,
                            .named = named_columns(context.config.args),
                            .trained = context.trained.columns,
                            .labels = labels};
  const FoundColumns found = find_columns(files.files, options, search);
  if (!found.warning.empty()) log::warning(found.warning);
  if (!found.report.empty()) log::info(found.report);
  return found.names;
}

}  // namespace finetune
