// SPDX-License-Identifier: MIT
#include "finetune/config/validate.h"

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "config/keys/schedule_problems.h"
#include "config/keys/words.h"
#include "config/reading/problems.h"
#include "config/reading/train_file.h"
#include "config/reading/values.h"
#include "finetune/base/json.h"
#include "finetune/config/class_weights.h"
#include "finetune/config/fields.h"
#include "finetune/config/schedule_names.h"
#include "finetune/config/tasks.h"
#include "finetune/config/techniques.h"

namespace finetune {
namespace {

// Checks the rules, one group per function; every message names the keys and what to do.
class Validator {
 public:
  explicit Validator(const LoadedConfig& config)
      : config_(config), args_(config.args), task_(task_keys(config.args.task)) {}

  void check_all(Purpose purpose) {
    check_exclusions(config_, problems_);
    check_device();
    check_delimiter();
    if (const auto problem = problem_of_class_weights(args_)) add({"class_weights"}, *problem);
    check_adapters(config_, purpose != Purpose::kEvaluate && args_.do_train, problems_);
    if (purpose == Purpose::kTrain && args_.do_train) check_choice_of_bits();
    check_chat();
    if (purpose == Purpose::kEvaluate) {
      check_evaluation_data(true);
      return;
    }
    if (!args_.do_train && !args_.do_eval && !args_.do_predict) {
      add({"do_train"},
          "do_train, do_eval and do_predict are all false: there is nothing to do; "
          "to train, leave do_train out or set it to true");
    }
    check_steps();
    check_best_model();
    check_schedule();
    check_early_stopping();
    check_loader();
    check_batch_sampler();
    check_streaming();
    check_model();
    check_task();
    check_training_data();
    check_evaluation_data(false);
  }

  void throw_if_any() const { problems_.throw_if_any(); }

 private:
  void check_choice_of_bits() {
    if (!args_.use_peft || four_bits_of(args_) != FourBits::kAuto || args_.memory_budget) return;
    add({"load_in_4bit"},
        "load_in_4bit: auto lets memory_budget choose four bits; set memory_budget, or true or "
        "false here");
  }

  // Reports at the first of the keys that was set, because the user can find it there.
  void add(std::initializer_list<const char*> keys, const std::string& message) {
    for (const char* key : keys) {
      if (config_.is_set(key)) return problems_.add(config_.where(key), message);
    }
    problems_.add(config_.where(""), message);
  }

  void require_whole(const char* key, double steps) {
    if (steps > 1 && steps != std::floor(steps)) {
      add({key}, "'" + std::string(key) + "' must be a whole number where it is above 1, not " +
                     format_double(steps));
    }
  }

  void check_device() {
    const bool has_other = args_.accelerator == "cuda" || args_.accelerator == "tpu";
    if (!args_.use_cpu || !has_other) return;
    add({"accelerator"}, "'accelerator: " + args_.accelerator +
                             "' excludes 'use_cpu: true': there is one device; keep one");
  }

  void check_delimiter() {
    if (!args_.delimiter) return;
    const std::string& text = *args_.delimiter;
    const bool fits = text.size() == 1 && static_cast<unsigned char>(text[0]) < 0x80 &&
                      text[0] != '"' && text[0] != '\n' && text[0] != '\r' && text[0] != '\0';
    if (fits) return;
    add({"delimiter"},
        "'delimiter' must be one ASCII character other than a quote or line end, or tab, comma, "
        "semicolon or pipe");
  }

  void check_chat() {
    if (args_.instruction_template && !args_.response_template) {
      add({"instruction_template"},
          "'instruction_template' says where learning stops, but response_template, which says "
          "where it begins, is not set");
    }
  }

  // transformers' _validate_args, in its order.
  void check_steps() {
    if (args_.logging_strategy == "steps") {
      if (args_.logging_steps == 0) {
        add({"logging_steps"}, "'logging_strategy: steps' needs logging_steps above 0");
      }
      require_whole("logging_steps", args_.logging_steps);
    }
    if (args_.eval_strategy == "steps") {
      if (args_.eval_steps.value_or(0) == 0) {
        add({"eval_steps", "eval_strategy"},
            "'eval_strategy: steps' needs eval_steps or logging_steps above 0");
      }
      require_whole("eval_steps", args_.eval_steps.value_or(0));
    }
    if (args_.save_strategy == "steps") require_whole("save_steps", args_.save_steps);
    require_whole("warmup_steps", args_.warmup_steps);
    if (args_.max_steps == 0) {
      add({"max_steps"}, "'max_steps: 0' trains nothing; write -1 to let num_train_epochs decide");
    }
  }

  // Metrics that depend on the data are checked before the first step.
  void check_metric() {
    if (!args_.metric_for_best_model) return;
    std::string name = *args_.metric_for_best_model;
    if (name.starts_with("eval_")) name = name.substr(5);
    if (name == "loss") return;
    const std::vector<std::string> known(task_.metric_names.begin(), task_.metric_names.end());
    if (!args_.prediction_loss_only && (task_.metrics_depend_on_data || contains(known, name))) {
      return;
    }
    add({"metric_for_best_model"},
        "the evaluation has no '" + name + "'; metric_for_best_model may be loss" +
            (args_.prediction_loss_only ? " (prediction_loss_only leaves other metrics out)"
                                        : " or " + join(known)));
  }

  void check_best_model() {
    check_metric();
    if (args_.save_strategy == "no" && args_.save_minutes.value_or(0) > 0) {
      add({"save_minutes", "save_strategy"},
          "'save_minutes' and 'save_strategy: no' exclude each other");
    }
    if (args_.save_strategy == "best" && args_.eval_strategy == "no") {
      add({"save_strategy"}, "'save_strategy: best' needs eval_strategy steps or epoch");
    }
    if (!args_.load_best_model_at_end || args_.save_strategy == "best") return;
    if (args_.eval_strategy != args_.save_strategy) {
      add({"load_best_model_at_end"},
          "'load_best_model_at_end: true' needs eval_strategy and save_strategy to be the same "
          "(or save_strategy best), but they are '" +
              args_.eval_strategy + "' and '" + args_.save_strategy + "'");
      return;
    }
    if (args_.eval_strategy == "no") {
      add({"load_best_model_at_end"},
          "'load_best_model_at_end: true' needs eval_strategy steps or epoch");
      return;
    }
    if (args_.eval_strategy == "steps") check_multiple(args_.save_steps, *args_.eval_steps);
  }

  void check_multiple(double save_steps, double eval_steps) {
    if (eval_steps <= 0) return;  // reported by check_steps
    if ((save_steps < 1) != (eval_steps < 1)) {
      add({"save_steps", "eval_steps"},
          "'load_best_model_at_end: true' needs save_steps and eval_steps both as step counts or "
          "both as shares of the run, not " +
              format_double(save_steps) + " and " + format_double(eval_steps));
      return;
    }
    // Fractions are compared in millionths, as in transformers, because 0.3 is not a multiple of
    // 0.1.
    const double scale = save_steps < 1 ? 1e6 : 1;
    if (std::fmod(std::round(save_steps * scale), std::round(eval_steps * scale)) != 0) {
      add({"save_steps", "eval_steps"},
          "'load_best_model_at_end: true' needs save_steps to be a multiple of eval_steps, which "
          "are " +
              format_double(save_steps) + " and " + format_double(eval_steps));
    }
  }

  void check_schedule() {
    const std::string& type = args_.lr_scheduler_type;
    const ScheduleNames* schedule = find_schedule_names(type);
    if (schedule != nullptr && schedule->follows_metric && args_.eval_strategy == "no") {
      add({"lr_scheduler_type"},
          "'lr_scheduler_type: " + type + "' needs eval_strategy steps or epoch");
    }
    const std::string problem = find_schedule_problem(type, args_.lr_scheduler_kwargs);
    if (!problem.empty()) add({"lr_scheduler_kwargs", "lr_scheduler_type"}, problem);
  }

  void check_early_stopping() {
    if (!args_.early_stopping_patience) {
      if (args_.early_stopping_threshold != 0) {
        add({"early_stopping_threshold"}, "early_stopping_threshold needs early_stopping_patience");
      }
      return;
    }
    if (args_.eval_strategy == "no") {
      add({"early_stopping_patience"},
          "early_stopping_patience needs eval_strategy steps or epoch");
    }
  }

  void check_loader() {
    if (args_.dataloader_num_workers == 0 && args_.dataloader_prefetch_factor) {
      add({"dataloader_prefetch_factor"},
          "dataloader_prefetch_factor needs dataloader_num_workers above 0");
    }
    if (args_.packing && args_.train_sampling_strategy == "group_by_length") {
      add({"packing"},
          "'packing' and 'train_sampling_strategy: group_by_length' exclude each other: "
          "packed rows are of one length");
    }
    if (args_.packing && args_.pad_to_max_length) {
      add({"packing"},
          "'packing' and 'pad_to_max_length' exclude each other: packed rows are full");
    }
    if (task_.samples_fill_length && args_.train_sampling_strategy == "group_by_length") {
      add({"train_sampling_strategy"},
          "'train_sampling_strategy: group_by_length' has nothing to group in task " + args_.task +
              ", whose examples are made to fill max_seq_length");
    }
  }

  void check_batch_sampler() {
    if (args_.batch_sampler != "no_duplicates") return;
    const std::string with = "'batch_sampler: no_duplicates' and ";
    if (args_.train_sampling_strategy != "random") {
      add({"batch_sampler", "train_sampling_strategy"},
          with + "'train_sampling_strategy: " + args_.train_sampling_strategy +
              "' exclude each other: each decides which samples share an update");
    }
    if (args_.streaming) {
      add({"batch_sampler", "streaming"},
          with +
              "'streaming: true' exclude each other: updates are made of samples from all of "
              "the data");
    }
  }

  void check_streaming() {
    if (!args_.streaming) {
      if (args_.shuffle_buffer_size != TrainingArgs{}.shuffle_buffer_size) {
        add({"shuffle_buffer_size"}, "'shuffle_buffer_size' needs streaming: true");
      }
      return;
    }
    if (args_.max_steps < 0) {
      add({"streaming"},
          "'streaming: true' needs max_steps: the number of samples is not known before they are "
          "read, so that num_train_epochs cannot be counted in steps");
    }
    if (args_.packing) {
      add({"packing", "streaming"},
          "'packing' and 'streaming: true' exclude each other: rows are packed by the lengths of "
          "all samples");
    }
    if (args_.train_sampling_strategy == "group_by_length") {
      add({"train_sampling_strategy", "streaming"},
          "'train_sampling_strategy: group_by_length' and 'streaming: true' exclude each other: "
          "groups are made of samples from all of the data");
    }
    if (!args_.train_file_weights.empty()) {
      add({"train_file_weights", "train_file", "streaming"},
          "weights of train_file and 'streaming: true' exclude each other: the shares of a mixture "
          "follow from the number of samples in each file");
    }
    if (!problem_of_class_weights(args_) && class_weights_of(args_).balanced) {
      add({"class_weights", "streaming"},
          "'class_weights: balanced' and 'streaming: true' exclude each other: the labels of all "
          "samples are counted; give the weights as a list or a mapping");
    }
    if (!task_.row_is_sample) {
      add({"streaming"}, "'streaming: true' is not possible for task " + args_.task +
                             ", whose rows do not make one sample each; leave it out");
    }
    if (config_.is_set("validation_split_percentage") && args_.validation_split_percentage > 0 &&
        args_.validation_file.empty()) {
      add({"validation_split_percentage"},
          "'validation_split_percentage' counts the rows of train_file, which 'streaming: true' "
          "does not: set validation_file, or validation_split_percentage to 0");
    }
  }

  // Rules of run_mlm and run_clm.
  void check_model() {
    if (!args_.do_train) return;
    if (!args_.model_name_or_path && !args_.model_type && !args_.config_name) {
      add({"model_name_or_path"},
          "no model: set model_name_or_path to one to start from, or model_type (and "
          "tokenizer_name) for a fresh one");
      return;
    }
    if (!args_.config_overrides.empty() && (args_.model_name_or_path || args_.config_name)) {
      add({"config_overrides"},
          "config_overrides belongs to a fresh model: it cannot be used with " +
              std::string(args_.model_name_or_path ? "model_name_or_path" : "config_name"));
    }
    if (!args_.model_name_or_path && !args_.tokenizer_name) {
      add({"model_type", "config_name"},
          "a fresh model needs tokenizer_name: `finetune tokenizer train` makes one");
    }
  }

  void check_training_data() {
    if (args_.do_train && args_.train_file.empty()) {
      add({"train_file"}, "no training data: set train_file, or do_train to false");
    }
    if (const auto problem = problem_of_weights(args_)) {
      add({"train_file_weights", "train_file"}, *problem);
    }
    check_sets();
  }

  void check_sets() {
    if (args_.train_file_sets.empty()) {
      if (args_.multi_dataset_batch_sampler != TrainingArgs{}.multi_dataset_batch_sampler) {
        add({"multi_dataset_batch_sampler"},
            "'multi_dataset_batch_sampler' needs several data sets: train_file: {a: a.jsonl, b: "
            "b.jsonl}");
      }
      return;
    }
    try {
      if (const auto problem = problem_of_sets(args_))
        add({"train_file_sets", "train_file"}, *problem);
    } catch (const Error& error) {
      add({"train_file_sets", "train_file"}, std::string("train_file: ") + error.what());
    }
  }

  void check_evaluation_data(bool evaluates) {
    if (args_.do_predict && !evaluates && args_.test_file.empty()) {
      add({"do_predict"}, "nothing to predict on: set test_file, or do_predict to false");
    }
    const bool wanted = evaluates || args_.do_eval || args_.eval_on_start;
    if (!wanted || !args_.validation_file.empty()) return;
    const bool may_split = has_key(task_, "validation_split_percentage");
    if (!may_split ||
        (!task_.splits_train_file && !config_.is_set("validation_split_percentage"))) {
      add({"eval_strategy", "do_eval", "eval_on_start"},
          std::string("no data to evaluate on: set validation_file") +
              (may_split ? ", or validation_split_percentage for a part of train_file" : ""));
      return;
    }
    const bool split =
        !args_.train_file.empty() && args_.validation_split_percentage > 0 && !args_.streaming;
    if (split && !(args_.train_file_weights.empty() && args_.train_file_sets.empty())) {
      add({"train_file_weights", "train_file_sets", "validation_split_percentage"},
          "rows to evaluate on cannot be split off a mixture of files: set "
          "validation_file");
    } else if (!split) {
      add({"eval_strategy", "do_eval", "eval_on_start", "validation_split_percentage"},
          std::string("no text to evaluate on: set validation_file") +
              (args_.streaming            ? ""
               : args_.train_file.empty() ? ", or train_file, of which validation_split_percentage "
                                            "is held out"
                                          : ", or validation_split_percentage above 0"));
    }
  }

  // Rejects keys of other tasks, which would have no effect.
  void check_task() {
    for (const Field& field : all_fields()) {
      const std::vector<std::string> owners = tasks_with(field.name);
      if (owners.empty() || contains(owners, args_.task)) continue;
      if (value_of(field, args_) == value_of(field, TrainingArgs{})) continue;
      const bool is_mapping = field.name == "train_file_sets";
      add({field.name.c_str()}, (is_mapping ? "train_file with columns or a loss of each entry"
                                            : "'" + field.name + "'") +
                                    " belongs to task " + join(owners) + "; task is " + args_.task);
    }
    if (args_.label_smoothing_factor != 0 && task_.learns_classes && !task_.learns_classes(args_)) {
      add({"label_smoothing_factor"},
          "label_smoothing_factor needs labels that are classes, which this task has not");
    }
  }

  // Returns the tasks that list the key; empty for a key of all tasks.
  static std::vector<std::string> tasks_with(std::string_view key) {
    std::vector<std::string> names;
    for (const TaskKeys* task : all_task_keys()) {
      if (has_key(*task, key)) names.emplace_back(task->name);
    }
    return names;
  }

  const LoadedConfig& config_;
  const TrainingArgs& args_;
  const TaskKeys& task_;
  Problems problems_;
};

}  // namespace

void validate(const LoadedConfig& config, Purpose purpose) {
  Validator validator(config);
  validator.check_all(purpose);
  validator.throw_if_any();
}

}  // namespace finetune
