// SPDX-License-Identifier: MIT
#include "finetune/task/setup.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/data/data_files.h"
#include "finetune/data/sample_stream.h"
#include "finetune/task/tasks.h"

namespace finetune {

std::vector<nlohmann::ordered_json> TaskSetup::generate_samples(Model&, c10::Device,
                                                                const Files&) const {
  return {};
}

TaskSetup::Files TaskSetup::calibrated_files(const nlohmann::ordered_json& /*metrics*/) const {
  return {};
}

std::unique_ptr<TaskSetup> make_task_setup(const SetupContext& context) {
  const TaskDescriptor& task = task_of(context.options.task);
  const SpecialTokens& special = context.tokenizer.special_tokens();
  const bool has_padding = special.pad || (is_causal(context.model) && special.eos);
  if (task.pads && !has_padding) {
    refuse_key(context.options.locations, "tokenizer_name", "the tokenizer names no padding token");
  }
  return task.make_setup(context);
}

void set_lengths(PaddingOptions& options, const SetupContext& context, int64_t longest) {
  constexpr int64_t kLengths = 3;
  constexpr int64_t kMultiple = 8;  // rows of a TPU's registers
  options.pad_to_max_length = context.options.pad_to_max_length;
  options.max_seq_length = longest;
  if (!context.few_lengths) return;
  const int64_t step = (longest + kLengths - 1) / kLengths;
  options.pad_to_multiple_of = (step + kMultiple - 1) / kMultiple * kMultiple;
}

int64_t sequence_length(const SetupContext& context, int64_t otherwise) {
  const TaskOptions& options = context.options;
  const int64_t longest = context.model.max_length();
  if (!options.max_seq_length) return std::min(longest, otherwise);
  if (*options.max_seq_length > kLongestSequence) {
    refuse_key(options.locations, "max_seq_length",
               std::to_string(*options.max_seq_length) + " is longer than " +
                   std::to_string(kLongestSequence) +
                   " tokens, the longest sequence that can be trained on; lower it");
  }
  if (*options.max_seq_length > longest) {
    refuse_key(options.locations, "max_seq_length",
               std::to_string(*options.max_seq_length) + " is longer than the " +
                   std::to_string(longest) + " tokens that the model's " +
                   std::to_string(context.model.max_position_embeddings) +
                   " positions allow; lower it");
  }
  return *options.max_seq_length;
}

int64_t preprocessing_threads(const DataArgs& args) {
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return args.preprocessing_num_workers.value_or(cores);
}

bool replaces_broken_utf8(const DataArgs& args) { return args.encoding_errors == "replace"; }

ReadingOptions reading_options(const TaskOptions& args) {
  ReadingOptions reading;
  if (args.delimiter) reading.delimiter = args.delimiter->at(0);
  if (args.quoting == "standard") reading.quoting = Quoting::kStandard;
  if (args.quoting == "none") reading.quoting = Quoting::kNone;
  reading.header = args.header;
  if (task_of(args.task).rows == RowTask::kTokenClassification)
    reading.conll_text = ConllText::kAny;
  return reading;
}

std::optional<StreamOptions> stream_options(const SetupContext& context, Split split,
                                            int64_t longest) {
  const TaskOptions& args = context.options;
  if (!args.streaming || split != Split::kTrain) return std::nullopt;
  return StreamOptions{
      .buffer = args.train_sampling_strategy == "sequential" ? 1 : args.shuffle_buffer_size,
      .seed = static_cast<uint64_t>(args.data_seed.value_or(args.seed)),
      .longest = longest,
      .token_types = context.model.type_vocab_size};
}

bool announce_stream(const TaskOptions& args, const std::string& what, const Dataset& data) {
  if (!is_stream(data)) return false;
  const bool in_order = args.train_sampling_strategy == "sequential";
  log::info(what + " data: streamed" +
            (in_order ? std::string(" in the order of the files")
                      : ", shuffled within a buffer of " +
                            std::to_string(args.shuffle_buffer_size) + " samples"));
  return true;
}

SplitFiles split_files(const TaskOptions& options, Split split) {
  SplitFiles files =
      split == Split::kTrain
          ? SplitFiles{options.train_file, "train_file", options.max_train_samples, "training"}
      : split == Split::kValidation
          ? SplitFiles{options.validation_file, "validation_file", options.max_eval_samples,
                       "evaluation"}
          : SplitFiles{options.test_file, "test_file", options.max_predict_samples, "test"};
  if (files.files.empty()) refuse_key(options.locations, files.key, "names no file; set it");
  return files;
}

SplitFiles files_to_read(const SetupContext& context, Split split) {
  SplitFiles files = split_files(context.options, split);
  if (split == Split::kTrain && context.entry != nullptr && *context.entry) {
    files.files = {files.files.at(**context.entry)};
  }
  return files;
}

ShowStep show_steps(ProgressDisplay& progress) {
  return [&progress](const StepProgress& step) {
    progress.step(step.phase, step.done, step.total, step.unit);
  };
}

void show_reading(ProgressDisplay& progress, const SplitFiles& files,
                  const std::function<void(const std::function<void(double)>&)>& build,
                  const std::string& phase) {
  uint64_t bytes = 0;
  for (const std::string& file : expand_files(files.files, files.key)) {
    bytes += FileSystem::local().open(file)->size();
  }
  const auto kilobytes = static_cast<int64_t>(bytes / 1000 + 1);
  bool begun = false;  // cached findings show no progress
  build([&](double fraction) {
    if (!begun) progress.begin(phase, kilobytes, 0, "kB");
    begun = true;
    progress.update(static_cast<int64_t>(fraction * static_cast<double>(kilobytes)));
  });
  if (!begun) return;
  progress.update(kilobytes);  // the last fraction may come before the last line
  progress.end();
}

}  // namespace finetune
