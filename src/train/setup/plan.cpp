// SPDX-License-Identifier: MIT
#include "finetune/train/plan.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/memory_status.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/config/batch_split.h"
#include "finetune/data/packing_plan.h"
#include "finetune/data/sets_in_turn.h"
#include "finetune/plan/exchange_script.h"
#include "finetune/plan/memory_plan.h"
#include "finetune/plan/memory_text.h"
#include "finetune/report/bucket_cost.h"
#include "finetune/report/duration_text.h"
#include "finetune/task/loader_options.h"
#include "finetune/tensor/device.h"
#include "train/setup/memory_budget.h"
#include "train/setup/memory_workload.h"
#include "train/setup/plan_cost.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

int64_t count_steps(const TrainingArgs& args, int64_t samples, int64_t effective_batch) {
  if (args.max_steps > 0) return args.max_steps;
  const int64_t per_epoch = args.dataloader_drop_last
                                ? samples / effective_batch
                                : (samples + effective_batch - 1) / effective_batch;
  return static_cast<int64_t>(
      std::ceil(args.num_train_epochs * static_cast<double>(std::max<int64_t>(1, per_epoch))));
}

// Returns the number of rows in an epoch: samples, or packed rows.
int64_t count_rows(const TrainingArgs& args, const DataParts& parts, int64_t effective_batch,
                   ProgressDisplay& progress) {
  const SetSampling sets = set_sampling(args, args);
  if (sets != SetSampling::kNone) {
    return samples_in_turn(dynamic_cast<const MixedDataset&>(*parts.train_data), sets,
                           effective_batch);
  }
  const int64_t capacity = parts.setup->packed_length();
  if (capacity == 0) return parts.train_data->size();
  return PackingPlan(
             *parts.train_data,
             {.capacity = capacity, .keeps_order = args.train_sampling_strategy == "sequential"},
             show_steps(progress))
      .rows();
}

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text + ' ';
}

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string line(const std::string& name, const std::string& value) {
  return padded(name, 24) + right(value, 12) + '\n';
}

std::string number(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string measured_lines(const Json& plan) {
  const bool on_device = plan.at("is_device").get<bool>();
  const Json& measured = plan.at(on_device ? "measured_host_peak" : "measured_peak");
  const double off = 100.0 * (plan.at("host").get<double>() / measured.get<double>() - 1.0);
  std::string text = line(on_device ? "measured on the host" : "measured peak",
                          mebibytes(measured.get<int64_t>()));
  text += line("prediction is off by", number(off, "%+.1f %%"));
  text += line("time of a step", duration_text(plan.at("step_seconds").get<double>()));
  text += line("the whole run", duration_text(3600 * plan.at("hours").get<double>()));
  return text;
}

// GPUs by the memory that their name says, less what the driver and a desktop take.
struct NamedGpu {
  const char* name;
  int64_t mebibytes;
};
constexpr NamedGpu kGpus[] = {
    {"8 GB", 7'400}, {"12 GB", 11'400}, {"T4", 14'400}, {"16 GB", 15'200}, {"24 GB", 23'200}};
constexpr int64_t kGpuWorkspace = int64_t{40} << 20;  // of cuBLAS

Json longest_rows_on_gpus(MemoryWorkload workload, const MemoryChoices& choices) {
  workload.is_device = workload.has_kernels = workload.has_flash = workload.has_tiles = true;
  workload.compiles = false;
  workload.workspace = kGpuWorkspace;
  std::vector<int64_t> bytes;
  for (const NamedGpu& gpu : kGpus) bytes.push_back(gpu.mebibytes << 20);
  const std::vector<int64_t> lengths = longest_rows(workload, choices, bytes);
  Json rows = Json::object();
  for (size_t i = 0; i < lengths.size(); ++i) rows[kGpus[i].name] = lengths[i];
  // A T4 has no tiles, and in bfloat16 no attention without scores at all.
  workload.has_tiles = false;
  workload.has_flash = choices.precision != Precision::kBFloat16;
  rows["T4"] = longest_rows(workload, choices, {bytes[2]})[0];
  return rows;
}

// With AdamW an adapter has half the bytes of its states.
uint64_t bytes_of_save(const TrainingArgs& args, const MemoryParts& needed) {
  const int64_t weights = args.use_peft ? needed.states / 2 : needed.weights;
  return static_cast<uint64_t>(weights + (args.save_only_model ? 0 : needed.states));
}

void add_bucket(const TrainingArgs& args, const MemoryParts& needed, Json& plan) {
  if (!args.mirror_dir || !checkpoint::is_bucket(*args.mirror_dir)) return;
  const auto steps = plan.at("steps").get<double>();
  double every = steps;
  if (args.save_strategy == "steps") {
    every = args.save_steps < 1 ? std::ceil(args.save_steps * steps) : args.save_steps;
  } else if (args.save_strategy == "epoch") {
    every = std::ceil(plan.at("samples").get<double>() /
                      std::max(1.0, plan.at("effective_batch").get<double>()));
  }
  // The last step is always saved.
  const auto saves = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps / every)));
  const std::optional<int64_t> limit =
      args.mirror_total_limit ? args.mirror_total_limit : args.save_total_limit;
  plan["bucket"] = expected_bucket_use(saves, bytes_of_save(args, needed),
                                       limit.value_or(0) < 1 ? saves : *limit);
}

std::string gpu_lines(const Json& rows) {
  std::string text;
  for (const auto& [name, tokens] : rows.items()) {
    const int64_t length = tokens.get<int64_t>();
    text += (text.empty() ? "" : ", ") + name + ": " +
            (length == 0 ? "none" : number(static_cast<double>(length), "%.0f"));
  }
  return "longest row, one at a time, on a GPU of " + text + " tokens\n";
}

}  // namespace

Json plan_training(const LoadedConfig& config, const PlanOptions& options) {
  const TrainingArgs& args = config.args;
  return_freed_memory();  // as training does
  ProgressDisplay progress(progress_mode(args));
  const DataParts parts = assemble_data(config, training_request(args), progress);
  const int64_t processes = processes_of(args, parts);
  const int64_t effective = asked_effective_batch(args, processes);
  MemoryWorkload workload =
      workload_of(config.args, parts, std::max<int64_t>(1, effective / processes));
  Json plan;
  const MemoryOptions memory_keys = memory_options(config);
  MemoryChoices choices = memory_keys.asked;
  std::optional<int64_t> budget = memory_keys.budget;
  if (!budget && parts.four_bits) budget = options.memory.value_or(device_memory(parts.device));
  if (budget) {
    const MemoryDecision decision = decide_memory(workload, memory_keys, *budget);
    choices = decision.choices;
    plan["decision"] = decision.to_json();
    plan["decision_line"] = decision.line();
  }
  workload.batches_at_once = batches_at_once(args, workload, choices);
  const MemoryParts needed = predict_memory(workload, choices);
  plan["parts"] = Json::object();
  for (const auto& [name, bytes] : named_parts(needed)) plan["parts"][name] = bytes;
  plan["peak"] = needed.peak();
  plan["host"] = workload.is_device ? needed.host : needed.peak();
  plan["available"] = device_memory(parts.device);
  plan["host_available"] = attainable_memory();
  plan["fits"] = needed.peak() <= plan["available"].get<int64_t>() &&
                 plan["host"].get<int64_t>() <= plan["host_available"].get<int64_t>();
  const int64_t memory = options.memory.value_or(plan["available"].get<int64_t>());
  plan["largest_batch_for"] = memory;
  plan["largest_batch"] = largest_micro_batch(workload, choices, memory);
  MemoryChoices smallest = choices;
  smallest.micro_batch = 1;
  plan["smallest_peak"] = predict_memory(workload, smallest).peak();
  plan["micro_batch"] = choices.micro_batch;
  plan["accumulation"] = workload.effective_batch / choices.micro_batch;
  plan["batches_at_once"] = workload.batches_at_once;
  plan["effective_batch"] = effective;
  plan["tokens_a_row"] = workload.length;
  plan["checkpointing"] = describe(choices.checkpointing);
  plan["head_rows_per_chunk"] = head_rows(choices, workload.has_kernels);
  plan["samples"] = count_rows(args, parts, effective, progress);
  plan["steps"] = count_steps(args, plan["samples"].get<int64_t>(), effective);
  plan["device"] = describe_device(parts.device);
  plan["is_device"] = workload.is_device;
  plan["flops"] = flops_of_update(workload, choices);
  MemoryWorkload elsewhere = workload;
  elsewhere.is_device = !workload.is_device;
  elsewhere.has_kernels = elsewhere.has_flash = elsewhere.has_tiles = elsewhere.is_device;
  elsewhere.compiles = false;
  plan["peak_elsewhere"] = predict_memory(elsewhere, choices).peak();
  if (workload.processes > 1) {
    const ExchangedBytes exchanged = exchanged_bytes(workload, choices);
    plan["exchanged"] = {{"weights", exchanged.weights}, {"gradients", exchanged.gradients}};
  }
  plan["longest_rows"] = longest_rows_on_gpus(workload, choices);
  add_bucket(args, needed, plan);
  return plan;
}

std::string plan_text(const Json& plan) {
  const auto bytes = [&](const char* name) { return mebibytes(plan.at(name).get<int64_t>()); };
  const auto count = [&](const char* name) { return std::to_string(plan.at(name).get<int64_t>()); };
  const std::string at_once =
      plan.value("batches_at_once", int64_t{1}) > 1
          ? " (" + count("batches_at_once") + " micro-batches at once, a thread each)"
          : "";
  std::string text = "on " + plan.at("device").get<std::string>() + ": " + count("micro_batch") +
                     " x " + count("accumulation") + " samples an update" + at_once + ", up to " +
                     count("tokens_a_row") +
                     " tokens each, recomputation: " + plan.at("checkpointing").get<std::string>() +
                     ", " + count("steps") + " steps\n";
  if (plan.contains("decision_line")) text += plan["decision_line"].get<std::string>() + '\n';
  text += '\n';
  for (const auto& [name, value] : plan.at("parts").items()) {
    text += line(name, mebibytes(value.get<int64_t>()));
  }
  text += line("predicted peak", bytes("peak"));
  if (plan.at("is_device").get<bool>()) text += line("of the host", bytes("host"));
  if (plan.contains("step_seconds")) text += measured_lines(plan);
  text += '\n';
  text += plan.at("fits").get<bool>() ? "fits: " : "does not fit: ";
  text += bytes("available") + " are there";
  if (plan.at("is_device").get<bool>()) text += ", " + bytes("host_available") + " on the host";
  text += "\nlargest per_device_train_batch_size within " + bytes("largest_batch_for") + ": ";
  const int64_t largest = plan.at("largest_batch").get<int64_t>();
  const int64_t samples = plan.value("samples", largest);
  text += largest == 0        ? "none"
          : largest > samples ? "all " + std::to_string(samples) + " samples"
                              : std::to_string(largest);
  text += '\n';
  if (plan.contains("exchanged")) {
    const Json& exchanged = plan["exchanged"];
    text +=
        "a process's link carries in an update: " + mebibytes(exchanged["weights"].get<int64_t>()) +
        " of weights in, " + mebibytes(exchanged["gradients"].get<int64_t>()) +
        " of gradients each way\n";
  }
  if (plan.contains("longest_rows")) text += gpu_lines(plan["longest_rows"]);
  if (plan.contains("bucket")) text += expected_bucket_use_text(plan["bucket"]);
  return text + costs_text(plan);
}

}  // namespace finetune
