// SPDX-License-Identifier: MIT
#include "train/session/start_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/memory_status.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/config/dump.h"
#include "finetune/config/validate.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/plan/memory_text.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

// Returns " (run.yaml:12)"; empty for a key that was not set.
std::string origin(const TrainingRun& run, const char* key) {
  if (!run.config.is_set(key)) return "";
  return " (" + file_name(run.config.where(key)) + ")";
}

std::string counted_files(const std::vector<std::string>& paths) {
  if (paths.empty()) return "no file";
  const std::string first = file_name(paths.front());
  return paths.size() == 1 ? first : first + format_text(" and {} more", paths.size() - 1);
}

std::string model_line(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  int64_t parameters = 0;
  for (const Weight& weight : run.parts.model->weights()) {
    parameters += weight.numel();
  }
  int64_t trained = 0;
  for (const Weight& weight : run.parts.model->trained_weights()) {
    trained += weight.numel();
  }
  const std::string share =
      trained == parameters ? ""
                            : format_text(", {} of them trained{}", trained, origin(run, "freeze"));
  const std::string name =
      args.model_name_or_path
          ? *args.model_name_or_path + origin(run, "model_name_or_path")
          : "a fresh " + args.model_type.value_or("model") + origin(run, "model_type");
  const std::optional<WeightFormat>& matrices = run.parts.base_format.matrices;
  const std::string four_bits =
      matrices ? ", matrices of the base in " + std::string(traits_of(*matrices).description) : "";
  return name +
         format_text(", {} parameters{}{}; task {}", parameters, share, four_bits, args.task) +
         origin(run, "task");
}

// "; columns: text 'question', choices 'choice0' to 'choice3', label 'label'"
std::string columns_text(const TrainingRun& run) {
  const ColumnNames& columns = run.parts.setup->record().columns;
  std::string text;
  const auto add = [&](const char* what, const std::optional<std::string>& name, const char* key) {
    if (!name) return;
    text += (text.empty() ? "; columns: " : ", ") + std::string(what) + " '" + *name + "'" +
            origin(run, key);
  };
  add("context", columns.context_column, "context_column");
  add("text", columns.text_column, "text_column");
  add("pair", columns.text_pair_column, "text_pair_column");
  if (!columns.text_columns.empty()) {
    add("texts", join(columns.text_columns, "', '"), "text_columns");
  }
  if (!columns.choice_columns.empty()) {
    const std::vector<std::string>& names = columns.choice_columns;
    add(names.size() == 1 ? "choices" : "choices from", names.front(), "choice_columns");
    if (names.size() > 1) text += " to '" + names.back() + "'";
  }
  add("label", columns.label_column, "label_column");
  return text;
}

std::string data_line(const TrainingRun& run) {
  std::string text = counted_files(run.args.train_file) + origin(run, "train_file") + ": ";
  text += run.stream ? "streamed" : std::to_string(run.parts.train_data->size()) + " samples";
  if (run.parts.validation_data) {
    text += format_text("; validation: {} samples", run.parts.validation_data->size());
  }
  if (run.parts.test_data) text += format_text("; test: {} samples", run.parts.test_data->size());
  return text + columns_text(run);
}

std::string batch_line(const TrainingRun& run) {
  std::string text =
      format_text("{} samples a step: {}", run.state.effective_batch_size, run.split.rows) +
      origin(run, "per_device_train_batch_size") + " at a time";
  if (run.split.accumulation > 1) {
    text += format_text(" x {} accumulated", run.split.accumulation) +
            origin(run, "gradient_accumulation_steps");
  }
  if (run.split.ranks > 1) text += format_text(" x {} processes", run.split.ranks);
  return text;
}

std::string training_line(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  return format_text("{} steps", run.plan.max_steps) +
         origin(run, args.max_steps > 0 ? "max_steps" : "num_train_epochs") + ", learning rate " +
         figure_text(args.learning_rate) + origin(run, "learning_rate") + ", " +
         args.lr_scheduler_type + format_text(" with {} warm-up steps, ", run.plan.warmup_steps) +
         args.optim + origin(run, "optim") + format_text(", seed {}", args.seed) +
         origin(run, "seed");
}

std::string device_line(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  std::string text = describe_device(run.parts.device);
  const std::string kernels = describe_kernels(run.parts.device);
  if (!kernels.empty()) text += ", kernels: " + kernels;
  text += args.bf16   ? ", bf16" + origin(run, "bf16")
          : args.fp16 ? ", fp16" + origin(run, "fp16")
                      : std::string(", float32");
  const auto planned = run.parts.memory.find("predicted");
  if (planned != run.parts.memory.end() && planned->is_number_integer()) {
    text += "; memory: " + mebibytes(planned->get<int64_t>()) + " planned" +
            origin(run, "memory_budget");
  }
  const int64_t memory = attainable_memory();
  if (memory > 0) text += "; " + mebibytes(memory) + " of host memory attainable";
  return text;
}

std::string save_line(const TrainingRun& run) {
  const TrainingArgs& args = run.args;
  std::string text;
  if (args.save_strategy == "steps") {
    text = format_text("every {} steps", run.plan.save_steps) + origin(run, "save_steps");
  } else {
    text = args.save_strategy == "no" ? "only at an early stop" : "every " + args.save_strategy;
    text += origin(run, "save_strategy");
  }
  text += " to " + run.storage.folder().shown();
  if (args.mirror_dir) text += ", mirrored to " + *args.mirror_dir;
  if (args.eval_strategy == "steps" && run.plan.eval_steps > 0) {
    text +=
        format_text("; evaluation every {} steps", run.plan.eval_steps) + origin(run, "eval_steps");
  } else if (args.eval_strategy == "epoch") {
    text += "; evaluation every epoch";
  }
  return text;
}

// The keys that the command line set, as it would set them again.
std::string set_on_command_line(const TrainingRun& run, const std::string& left_out = "") {
  std::string text;
  const auto add = [&](const nlohmann::ordered_json& value) {
    text += " " + shell_word(value.is_string() ? value.get<std::string>() : value.dump());
  };
  const nlohmann::ordered_json keys = to_json(run.args);
  for (const auto& [key, value] : keys.items()) {
    if (value.is_null() || !run.config.is_set(key) || run.config.where(key) != "command line") {
      continue;
    }
    if (key == "num_processes" || key == left_out) continue;  // evaluate works in one process
    text += " --" + key;
    if (!value.is_array()) {
      add(value);
    } else if (value.empty()) {
      add(nullptr);
    } else {
      for (const auto& item : value) add(item);
    }
  }
  return text;
}

// A command that evaluates the finished run; empty if the configuration does not allow it. A model
// on its command line would be evaluated instead of the run's.
std::string evaluate_command(const TrainingRun& run) {
  const std::string command = command_name() + " evaluate " + shell_word(run.config.path) +
                              set_on_command_line(run, "model_name_or_path");
  LoadedConfig config = run.config;
  try {
    validate(config, Purpose::kEvaluate);
    return command;
  } catch (const Error&) {  // there may be no data to evaluate on
    if (!config.args.validation_file.empty()) return "";
  }
  config.args.validation_file = {"FILE"};
  try {
    validate(config, Purpose::kEvaluate);
    return command + " --validation_file FILE";
  } catch (const Error&) {
    return "";
  }
}

// What `predict` takes on its command line.
std::string question_text(const TrainingRun& run) {
  const TaskDescriptor& task = task_of(run.args.task);
  if (task.rows == RowTask::kQuestionAnswering) return " --question \"...\" --context \"...\"";
  if (task.rows == RowTask::kMultipleChoice) {
    return " --text \"...\" --choice \"...\" \"...\"";
  }
  if (task.rows == RowTask::kDecision) return " --input requests.jsonl";
  if (run.parts.chat_template != nullptr) return " --chat --text \"...\"";
  const auto& mask = run.parts.tokenizer->special_tokens().mask;
  if (task.pipeline.name == "fill-mask" && mask) return " --text \"... " + mask->text + " ...\"";
  const bool reads_pairs = run.parts.setup->record().columns.text_pair_column.has_value();
  return reads_pairs ? " --text \"...\" --text_pair \"...\"" : " --text \"...\"";
}

std::string position_line(const TrainingRun& run) {
  if (run.state.step == 0) return "at step 0";
  return format_text("at step {} of {}, after {} in training", run.state.step, run.plan.max_steps,
                     duration_text(run.state.seconds));
}

}  // namespace

std::vector<std::string> start_lines(const TrainingRun& run, std::optional<double> seconds_left,
                                     const std::optional<std::string>& cost) {
  std::string expected;
  if (seconds_left) {
    expected = duration_text(*seconds_left);
  } else {
    const std::string config = run.config.path.empty() ? "" : " " + shell_word(run.config.path);
    expected = "known after the first steps; before: " + command_name() + " plan" + config +
               set_on_command_line(run) + " --measure 3";
  }
  if (cost) expected += "; " + *cost;
  std::vector<std::string> lines = {
      "  model     " + model_line(run),    "  data      " + data_line(run),
      "  batch     " + batch_line(run),    "  training  " + training_line(run),
      "  device    " + device_line(run),   "  saves     " + save_line(run),
      "  starts    " + position_line(run), "  expected  " + expected};
  const std::optional<int64_t> columns = run.progress.text_columns();
  if (!columns) return lines;
  // Under the text; a narrow terminal has no columns to spare.
  const int64_t indent = std::min(std::ssize(std::string_view("  model     ")), *columns / 6);
  std::vector<std::string> wrapped;
  for (const std::string& line : lines) {
    const auto parts = wrapped_lines(line, *columns, indent);
    wrapped.insert(wrapped.end(), parts.begin(), parts.end());
  }
  return wrapped;
}

std::vector<std::string> usage_lines(const TrainingRun& run) {
  const std::string folder = shell_word(run.storage.folder().shown());
  const Pipeline& pipeline = task_of(run.args.task).pipeline;
  const std::string predict =
      "  predict:       " + command_name() + " predict " + folder + question_text(run);
  std::vector<std::string> lines = {predict};
  if (run.config.path.empty()) {
    lines.push_back("  report:        " + command_name() + " report " + folder);
  } else {
    const std::string evaluate = evaluate_command(run);
    if (!evaluate.empty()) lines.push_back("  evaluate:      " + evaluate);
    lines.push_back("  report:        " + command_name() + " report " + folder);
  }
  if (pipeline.library != nullptr) {
    lines.push_back("  python:        " + library_call(pipeline.library(run.args),
                                                       run.storage.folder().shown(),
                                                       run.args.use_peft));
  } else if (!pipeline.class_suffix.empty()) {
    const LoadingClass loads = loading_class(run);
    const std::string shown = "\"" + run.storage.folder().shown() + "\"";
    const std::string whole = "AutoModel" + loads.ending + ".from_pretrained(";
    if (loads.has_peft_class) {
      lines.push_back("  peft:          AutoPeftModel" + loads.ending + ".from_pretrained(" +
                      shown + ")");
    } else if (run.args.use_peft) {
      lines.push_back("  peft:          PeftModel.from_pretrained(" + whole + "\"" +
                      run.args.model_name_or_path.value_or("") + "\"), " + shown + ")");
    } else {
      lines.push_back("  transformers:  " + whole + shown + ")");
    }
  }
  return lines;
}

}  // namespace finetune
