// SPDX-License-Identifier: MIT
#include "config/rules/derive.h"

#include <algorithm>
#include <array>

#include "config/reading/paths.h"
#include "config/reading/problems.h"
#include "finetune/base/text.h"
#include "finetune/config/batch_split.h"
#include "finetune/config/schedule_names.h"
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

// Rejects different values under both names of one key; transformers uses the new name.
template <class Value>
void refuse_two_values(const KeyLocations& keys, const std::string& name, const Value& value,
                       const Value& old_value, Problems& problems) {
  const std::string old_name = "gradient" + name.substr(name.find('_'));
  const bool differ = keys.is_set(name) && keys.is_set(old_name) && value != old_value;
  if (!differ || value == Value{} || old_value == Value{}) return;
  problems.add(keys.where(old_name), "'" + old_name + "' is the old name of '" + name +
                                         "', which is set to another value at " + keys.where(name) +
                                         "; keep one");
}

void refuse_two_checkpointings(const LoadedConfig& config, Problems& problems) {
  const TrainingArgs& args = config.args;
  refuse_two_values(config, "activation_checkpointing", args.activation_checkpointing,
                    args.gradient_checkpointing, problems);
  refuse_two_values(config, "activation_checkpointing_kwargs", args.activation_checkpointing_kwargs,
                    args.gradient_checkpointing_kwargs, problems);
}

// Derives values like parts 1 and 3 of transformers' TrainingArguments.__post_init__.
void derive_as_transformers(TrainingArgs& args) {
  if (!args.activation_checkpointing) args.activation_checkpointing = args.gradient_checkpointing;
  if (!args.activation_checkpointing) args.activation_checkpointing = false;
  args.gradient_checkpointing = args.activation_checkpointing;
  if (args.activation_checkpointing_kwargs.empty()) {
    args.activation_checkpointing_kwargs = args.gradient_checkpointing_kwargs;
  }
  args.gradient_checkpointing_kwargs = args.activation_checkpointing_kwargs;
  if (args.eval_strategy != "no") args.do_eval = true;
  if (args.eval_strategy == "steps" && args.eval_steps.value_or(0) == 0) {
    args.eval_steps = args.logging_steps;
  }
}

// Metrics that are better where they are smaller; the first is transformers' rule.
constexpr std::array kErrorMetrics = {"loss", "brier", "ece", "nll", "score_mae"};

// Comparing answers needs smaller steps than learning them.
void derive_learning_rate(LoadedConfig& config) {
  const std::optional<double>& own = task_keys(config.args.task).learning_rate;
  if (own && !config.is_set("learning_rate")) config.args.learning_rate = *own;
}

// In addition to transformers' rule: early stopping and save_strategy "best" need a metric too.
// There the first fails an assertion and the second never saves.
void derive_metric(TrainingArgs& args) {
  const ScheduleNames* schedule = find_schedule_names(args.lr_scheduler_type);
  const bool needed = args.load_best_model_at_end || args.early_stopping_patience ||
                      args.save_strategy == "best" ||
                      (schedule != nullptr && schedule->follows_metric);
  if (needed && !args.metric_for_best_model) args.metric_for_best_model = "loss";
  if (args.metric_for_best_model && !args.greater_is_better) {
    const std::string& metric = *args.metric_for_best_model;
    args.greater_is_better =
        std::ranges::none_of(kErrorMetrics, [&](const char* end) { return metric.ends_with(end); });
  }
}

void derive_report_to(LoadedConfig& config, Problems& problems) {
  TrainingArgs& args = config.args;
  if (args.reports_to("none") && args.report_to.size() > 1) {
    problems.add(config.where("report_to"),
                 "'report_to' names none and another tracker; keep one of them");
  }
  std::vector<std::string> receivers;
  if (args.reports_to("tensorboard") || args.reports_to("all")) receivers = {"tensorboard"};
  for (const char* tracker : {"wandb", "mlflow"}) {
    if (args.reports_to(tracker)) receivers.emplace_back(tracker);
  }
  args.report_to = receivers.empty() ? std::vector<std::string>{"none"} : receivers;
}

// sentence-transformers' cached losses: the samples that are compared, and those computed at once.
void derive_mini_batches(LoadedConfig& config, Problems& problems) {
  TrainingArgs& args = config.args;
  if (!args.mini_batch_size) return;
  const int64_t compared = args.per_device_train_batch_size;
  const int64_t at_once = std::min(*args.mini_batch_size, compared);
  if (compared % at_once != 0) {
    problems.add(config.where("mini_batch_size"),
                 format_text("'mini_batch_size: {}' does not divide "
                             "'per_device_train_batch_size: {}'",
                             *args.mini_batch_size, compared));
    return;
  }
  if (!args.effective_batch_size) args.gradient_accumulation_steps *= compared / at_once;
  args.per_device_train_batch_size = at_once;
}

void derive_accumulation(LoadedConfig& config, Problems& problems) {
  TrainingArgs& args = config.args;
  if (!args.effective_batch_size) return;
  const int64_t samples = *args.effective_batch_size;
  const std::optional<BatchSplit> split =
      BatchSplit::of(samples, args.per_device_train_batch_size, /*ranks=*/1);
  if (!split) {
    problems.add(
        config.where("effective_batch_size"),
        format_text(
            "'effective_batch_size: {}' is not a multiple of 'per_device_train_batch_size: {}'",
            samples, args.per_device_train_batch_size));
    return;
  }
  if (config.is_set("gradient_accumulation_steps") &&
      args.gradient_accumulation_steps != split->accumulation) {
    config.notes.push_back(
        format_text("{}: gradient_accumulation_steps is {}{}, not {}, because "
                    "'effective_batch_size: {}' is kept",
                    config.where("gradient_accumulation_steps"), split->accumulation,
                    args.num_processes == "1" ? "" : " in all processes together",
                    args.gradient_accumulation_steps, samples));
  }
  args.gradient_accumulation_steps = split->accumulation;
}

void expand_default_cache(LoadedConfig& config, Problems& problems) {
  if (config.is_set("cache_dir")) return;
  std::string problem;
  const std::optional<std::string> folder = expand(config.args.cache_dir, problem);
  if (folder) {
    config.args.cache_dir = *folder;
  } else {
    problems.add(config.where("cache_dir"), "'cache_dir' " + problem + ": set it to a folder");
  }
}

// bitsandbytes' paged states may move to host memory while a GPU lacks room.
void note_paged_optimizer(LoadedConfig& config) {
  const std::string& optim = config.args.optim;
  if (!optim.starts_with("paged_")) return;
  config.notes.push_back(config.where("optim") + ": 'optim: " + optim + "' has the states of '" +
                         optim.substr(std::string("paged_").size()) +
                         "', which stay on the device; memory_budget chooses what fits");
}

}  // namespace

void derive(LoadedConfig& config, Problems& problems) {
  refuse_two_checkpointings(config, problems);
  derive_as_transformers(config.args);
  derive_learning_rate(config);
  check_techniques(config, problems);
  check_session(config, problems);
  derive_metric(config.args);
  derive_report_to(config, problems);
  derive_mini_batches(config, problems);
  derive_accumulation(config, problems);
  expand_default_cache(config, problems);
  note_paged_optimizer(config);
  if (config.args.model_name_or_path && config.args.model_type) {
    config.notes.push_back(config.where("model_type") +
                           ": model_type has no effect, because model_name_or_path is given");
  }
}

}  // namespace finetune
