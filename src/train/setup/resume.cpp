// SPDX-License-Identifier: MIT
#include "train/setup/resume.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/config/dump.h"
#include "finetune/kernels/precision.h"
#include "finetune/model/model_config.h"
#include "finetune/task/tasks.h"

namespace finetune {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::kConfig, message); }

// Returns the first field in which two config.json differ, with both values.
std::string first_difference(const std::string& saved, const std::string& present) {
  const auto old_json = parse_json(saved, kConfigFile);
  const auto new_json = parse_json(present, kConfigFile);
  for (const auto& [key, value] : old_json.items()) {
    const std::string now = new_json.contains(key) ? new_json[key].dump() : "(none)";
    if (now != value.dump()) return key + " was " + value.dump() + " and is now " + now;
  }
  for (const auto& [key, value] : new_json.items()) {
    if (!old_json.contains(key)) return key + " was (none) and is now " + value.dump();
  }
  return "its fields are others";
}

std::string gibibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// Returns "'bad', 'good'" or "'a', 'b', 'c' and 77 more".
std::string list_of_labels(const nlohmann::ordered_json& names) {
  constexpr int64_t kShown = 5;
  std::string list;
  int64_t count = 0;
  for (const auto& [number, name] : names.items()) {
    if (++count > kShown) continue;
    list += (list.empty() ? "" : ", ") +
            (name.is_string() ? "'" + name.get<std::string>() + "'" : name.dump());
  }
  return count > kShown ? list + " and " + std::to_string(count - kShown) + " more" : list;
}

// Returns the labels of two config.json if they differ; else empty.
std::string other_labels(const std::string& saved, const std::string& present) {
  const auto labels_in = [](const std::string& text) {
    const auto json = parse_json(text, kConfigFile);
    const auto found = json.find("id2label");
    return found != json.end() && found->is_object() ? *found : nlohmann::ordered_json::object();
  };
  const auto before = labels_in(saved);
  const auto now = labels_in(present);
  if (before == now || before.empty() || now.empty()) return "";
  return list_of_labels(before) + " then, " + list_of_labels(now) + " now";
}

}  // namespace

void check_identity(const RunIdentity& saved, const RunIdentity& present, const FoundRun& run,
                    const std::function<std::string()>& explain_data) {
  const std::string& checkpoint = run.folder;
  const std::string advice = "; put it back, " + run.way_out;
  // Through the fields, not the text: a later version may write more of them.
  const auto fields = [&](const std::string& text) {
    return model_config_json(parse_model_config(parse_json(text, checkpoint), checkpoint), "");
  };
  if (fields(saved.model) != fields(present.model)) {
    const std::string labels = other_labels(saved.model, present.model);
    if (!labels.empty()) {
      refuse("the labels are not those that " + checkpoint + " began with: " + labels +
             "; check train_file and label_column, " + run.way_out);
    }
    refuse("the model is not the one that " + checkpoint +
           " began with: " + first_difference(saved.model, present.model) + advice);
  }
  const auto adapter_in = [&](const std::string& text) {
    return parse_json(text, checkpoint).value("adapter", nlohmann::ordered_json());
  };
  const nlohmann::ordered_json before = adapter_in(saved.model);
  const nlohmann::ordered_json now = adapter_in(present.model);
  if (!before.is_null() && before != now) {
    refuse("the adapter is not the one that " + checkpoint +
           " began with: " + first_difference(before.dump(), now.dump()) + advice);
  }
  if (saved.tokenizer != present.tokenizer) {
    refuse("the tokenizer is not the one that " + checkpoint + " began with (content hash " +
           saved.tokenizer + " then, " + present.tokenizer + " now)" + advice);
  }
  if (saved.chat_template != present.chat_template) {
    refuse("the chat template is not the one that " + checkpoint + " began with (content hash " +
           saved.chat_template + " then, " + present.chat_template + " now); check " +
           "chat_template_path, " + run.way_out);
  }
  if (saved.guides != present.guides) {
    refuse(
        "the weights that the loss compares with (model_name_or_path and adapter_name_or_path, "
        "or the guide's) are not those that " +
        checkpoint + " began with: " + saved.guides + " then, " + present.guides + " now" +
        (run.starts.empty() ? "" : " (" + run.starts + ")") + advice);
  }
  if (saved.data != present.data) {
    const std::string why = explain_data ? explain_data() : "";
    refuse("the training data are not those that " + checkpoint + " began with (" +
           (why.empty() ? "" : why + "; ") + "content hash " + saved.data + " then, " +
           present.data + " now); put them back, " + run.way_out);
  }
  if (saved.validation != present.validation && !saved.validation.empty() &&
      !present.validation.empty()) {
    const std::string change = "the validation data have changed since " + checkpoint;
    if (run.compares_evaluations) {
      refuse(change + ", and the best model is chosen among evaluations before and after" + advice);
    }
    log::warning(change + ": eval_loss before and after do not compare");
  }
}

void check_fixed_keys(const RunState& saved, const LoadedConfig& config, const FoundRun& run) {
  std::string faults;
  for (const KeyChange& change : changed_keys(saved.config, to_json(config.args))) {
    if (change.policy != ResumePolicy::kFixed || change.is_path) continue;
    const std::string before =
        change.old_text == "null" ? "without it, with its default" : "with " + change.old_text;
    faults += (faults.empty() ? "" : "\n") + config.where(change.name) + ": " + change.name +
              " is " + change.new_text + ", but " + run.folder + " began " + before +
              "; it may not change within a run: put it back, " + run.way_out;
  }
  if (!faults.empty()) refuse(faults);
}

LoadedConfig with_decided_keys(const LoadedConfig& config, const RunState& saved) {
  LoadedConfig decided = config;
  if (four_bits_of(config.args) != FourBits::kAuto) return decided;
  const auto stored = saved.config.find("load_in_4bit");
  const bool is_true = stored != saved.config.end() && (*stored == true || *stored == "true");
  decided.args.load_in_4bit = is_true ? "true" : "false";
  log::info(std::string("load_in_4bit: this run keeps its base ") +
            (is_true ? "in four bits" : "whole") + ", as it began");
  return decided;
}

BatchSplit resumed_split(const LoadedConfig& config, const RunState& saved, int64_t ranks) {
  const TrainingArgs& args = config.args;
  const int64_t effective = args.effective_batch_size.value_or(saved.effective_batch_size);
  if (!args.train_file_sets.empty() && effective != saved.effective_batch_size) {
    refuse(
        format_text("{}: effective_batch_size {} would change the {} samples of an update, which "
                    "all are of one entry of train_file; leave it as it was",
                    config.where("effective_batch_size"), effective, saved.effective_batch_size));
  }
  const std::optional<BatchSplit> split =
      BatchSplit::of(effective, args.per_device_train_batch_size, ranks);
  if (!split) {
    refuse(config.where("per_device_train_batch_size") + ": per_device_train_batch_size " +
           std::to_string(args.per_device_train_batch_size) +
           (ranks > 1 ? " x " + std::to_string(ranks) + " processes" : std::string()) +
           " does not divide the run's effective "
           "batch of " +
           std::to_string(effective) +
           "; choose a divisor, or set effective_batch_size to change it on purpose");
  }
  return *split;
}

std::string machine_difference(const Environment& then, const Environment& now) {
  std::string differences;
  const auto add = [&](const std::string& what, const std::string& old_text,
                       const std::string& new_text) {
    differences += (differences.empty() ? "" : ", ") + what + " " + old_text + " -> " + new_text;
  };
  if (then.torch_version != now.torch_version) add("torch", then.torch_version, now.torch_version);
  if (then.device != now.device) add("device", then.device, now.device);
  if (then.cpu_capability != now.cpu_capability) {
    add("instruction set", then.cpu_capability, now.cpu_capability);
  }
  if (then.processors > 0 && now.processors > 0 && then.processors != now.processors) {
    add("processors", std::to_string(then.processors), std::to_string(now.processors));
  }
  // The reported size of the same memory differs slightly between kernels.
  const auto then_bytes = static_cast<double>(then.machine_memory);
  const auto now_bytes = static_cast<double>(now.machine_memory);
  const bool are_known = then.machine_memory > 0 && now.machine_memory > 0;
  if (are_known && std::abs(then_bytes - now_bytes) > 0.02 * std::max(then_bytes, now_bytes)) {
    add("memory", gibibytes(then.machine_memory), gibibytes(now.machine_memory));
  }
  return differences;
}

std::string arithmetic_difference(const Environment& then, const Environment& now,
                                  const TrainingArgs& args) {
  if (then.arithmetic == now.arithmetic) return "";
  if (then.arithmetic > now.arithmetic) {
    return "a newer finetune wrote the checkpoint, whose arithmetic may differ";
  }
  const Precision precision = args.bf16 ? Precision::kBFloat16 : Precision::kFloat16;
  const bool is_emulated =
      (args.fp16 || args.bf16) && now.device == "cpu" && !has_fast_products(precision, at::kCPU);
  if (then.arithmetic < 2 && is_emulated) {
    return "an earlier finetune wrote the checkpoint, and fp16 and bf16 on a processor without "
           "16-bit instructions may end in other bits since";
  }
  if (then.arithmetic < 4 && now.arithmetic >= 4 && !task_of(args.task).reads_all_tokens) {
    return "an earlier finetune wrote the checkpoint, which computed more for tokens that the loss "
           "does not read";
  }
  if (then.arithmetic < 5 && now.arithmetic >= 5 && now.device == "cpu") {
    return "an earlier finetune wrote the checkpoint, which added the products of matrices in "
           "another order";
  }
  return "";
}

// Up to version 0.2.0 all threads of a process computed a logical shard together.
std::string shard_difference(const RunState& saved, int64_t shard_threads) {
  const bool has_shards = saved.shard_rows > 0;
  if (!has_shards || shard_threads != 1 || saved.shard_threads == 1) return "";
  if (saved.environment.threads == 1 || saved.environment.device != "cpu") return "";
  return "one thread computes each logical shard, where an earlier version of finetune used " +
         std::to_string(saved.environment.threads);
}

void announce_changes(const RunState& saved, const LoadedConfig& config,
                      const Environment& environment, int64_t accumulation) {
  const std::string from = " from step " + std::to_string(saved.step);
  bool is_split_again = saved.environment.processes != environment.processes;
  for (const KeyChange& change : changed_keys(saved.config, to_json(config.args))) {
    is_split_again |= change.name == "per_device_train_batch_size";
    // It was derived then; the line below gives the values for each process.
    const bool is_derived =
        change.name == "gradient_accumulation_steps" && config.args.effective_batch_size;
    if (change.policy == ResumePolicy::kFreeAnnounced && !is_derived) {
      log::info("changed: " + change.name + " " + change.old_text + " -> " + change.new_text +
                from);
    }
  }
  const int64_t asked = asked_effective_batch(config.args, environment.processes);
  const bool is_kept = asked == saved.effective_batch_size;
  if (config.args.effective_batch_size ? is_split_again && is_kept : !is_kept) {
    log::info("the effective batch stays " + std::to_string(saved.effective_batch_size) +
              ": gradient_accumulation_steps is " + std::to_string(accumulation) + " now");
  }
  const Environment& old = saved.environment;
  std::string differences = machine_difference(old, environment);
  const bool has_fixed_bits = config.args.full_determinism && environment.device == "cpu";
  const bool has_other_threads = old.threads != environment.threads && !has_fixed_bits;
  if (has_other_threads) {
    differences += (differences.empty() ? "" : ", ") + std::string("threads ") +
                   std::to_string(old.threads) + " -> " + std::to_string(environment.threads);
  }
  const std::string arithmetic = arithmetic_difference(old, environment, config.args);
  if (!arithmetic.empty()) differences += (differences.empty() ? "" : ", ") + arithmetic;
  if (differences.empty()) return;
  // Memory and processors alone change nothing, because the run keeps its number of threads.
  const bool changes_bits =
      old.torch_version != environment.torch_version || old.device != environment.device ||
      old.cpu_capability != environment.cpu_capability || has_other_threads || !arithmetic.empty();
  if (changes_bits) {
    log::warning("not bit-exact from here: " + differences);
  } else if (has_fixed_bits) {
    log::info("another machine: " + differences + "; the run's bits do not depend on it");
  } else {
    log::info("another machine: " + differences + "; the run keeps its " +
              std::to_string(environment.threads) + " threads, which its bits depend on");
  }
}

}  // namespace finetune
