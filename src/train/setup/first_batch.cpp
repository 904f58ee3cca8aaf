// SPDX-License-Identifier: MIT
#include "finetune/train/first_batch.h"

#include <algorithm>
#include <span>

#include "finetune/base/error.h"
#include "finetune/base/printable.h"
#include "finetune/config/batch_split.h"
#include "finetune/report/batch_text.h"
#include "finetune/report/learned_text.h"
#include "finetune/report/progress.h"
#include "finetune/task/loader_options.h"
#include "finetune/task/tasks.h"
#include "train/setup/assemble.h"
#include "train/setup/check_data.h"
#include "train/setup/memory_workload.h"

namespace finetune {
namespace {

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string describe_first_batch(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  ProgressDisplay progress(progress_mode(args));
  const DataParts parts = assemble_data(config, training_request(args), progress);
  const int64_t effective = asked_effective_batch(args, processes_of(args, parts));
  const int64_t samples = parts.train_data->size();
  LoaderOptions options = loader_options(
      args, args, args, std::max<int64_t>(1, effective / args.per_device_train_batch_size),
      default_length_group(args, samples, effective), parts.setup->packed_length());
  options.workers = 0;
  Loader loader(parts.train_data, parts.collator, options, show_steps(progress));
  progress.end();
  const std::span<const Batch> update = loader.take({});
  check_first_update(config, parts, update);
  const bool has_targets =
      std::ranges::any_of(update, [](const Batch& part) { return part.targets > 0; });
  if (!has_targets) {
    throw Error(ErrorKind::kData,
                config.where("train_file") +
                    ": train_file: the first update has no target to learn from; check the labels, "
                    "the columns and the tokenizer");
  }
  const Batch& batch = update.front();
  const TaskDescriptor& task = task_of(args.task);
  const std::string unit(task.sample);
  const bool is_streamed = args.streaming;  // the number of samples is unknown
  std::string text = "data: " + (is_streamed ? "streamed training " + unit + "s"
                                             : counted(samples, "training " + unit));
  if (parts.validation_data) {
    text += ", " + counted(parts.validation_data->size(), "validation " + unit);
  }
  if (parts.test_data) text += ", " + counted(parts.test_data->size(), "test " + unit);
  text += is_streamed ? "\n" : ", " + counted(loader.updates_per_epoch(), "step") + " an epoch\n";
  text += "first batch: " + counted(batch.size(), unit) + " of at most " +
          counted(batch.length, "token") + ", " + counted(batch.tokens, "token") + " without " +
          "padding, " + counted(batch.targets, "target") + " to learn from\n\n";
  if (task.rows == RowTask::kChat) {
    return printable(text) +
           learned_text(*parts.train_data, 3, *parts.tokenizer, LearnedMarks::for_output());
  }
  text += batch_text(batch, {.tokenizer = *parts.tokenizer,
                             .labels_are_words = task.learns_words,
                             .labels_follow = task.learns_next_words,
                             .class_text = task.class_text,
                             .target_text = task.target_text,
                             .id2label = parts.model_config.id2label,
                             .is_regression = parts.model_config.problem_type == "regression"});
  return printable(text);
}

}  // namespace finetune
