// SPDX-License-Identifier: MIT
#include "train/session/session_events.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/owner.h"
#include "finetune/config/dump.h"
#include "finetune/config/fields.h"
#include "finetune/report/metrics_file.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLookedAt = 256;  // samples: reading one may load a block of the cache
constexpr size_t kBins = 20;        // of the histogram of lengths
constexpr size_t kMostLabels = 100;

constexpr uint64_t kTailBytes = uint64_t{1} << 16;  // of metrics.jsonl: its last lines

// Adds how far the log is before this session cuts it at its first step: what a killed session
// logged after its last checkpoint.
void add_logged_step(const TrainingRun& run, Json& event) {
  const std::string path = join_path(run.args.output_dir, kMetricsFile);
  try {
    read_json_lines(
        run.files, path,
        [&](Json&& line, uint64_t) {
          if (!line.contains("step") || !line["step"].is_number_integer()) return true;
          event["logged_step"] = line["step"];
          if (line.contains("time")) event["logged_time"] = line["time"];
          return true;
        },
        offset_of_last_lines(run.files, path, kTailBytes));
  } catch (const Error& error) {  // the event is written without
    log::debug(error.what());
  }
}

// The keys that the configuration or the command line sets.
Json set_keys(const TrainingRun& run) {
  Json names = Json::array();
  for (const Field& field : all_fields()) {
    if (run.config.is_set(field.name)) names.push_back(field.name);
  }
  return names;
}

}  // namespace

Json data_statistics(const Dataset& data, bool has_examples) {
  const int64_t size = data.size();
  Json found = {{"samples", size}};
  if (size == 0 || !has_examples) return found;
  std::vector<int64_t> lengths;
  std::map<int64_t, int64_t> labels;
  const int64_t looked_at = std::min(size, kLookedAt);
  for (int64_t i = 0; i < looked_at; ++i) {
    const int64_t index = static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(size) /
                                               static_cast<double>(looked_at));
    const Example example = data.get(index);
    auto length = static_cast<int64_t>(example.input_ids.size());
    for (int64_t choice = 1; choice < data.choices_of(index); ++choice)
      length += data.length(index, choice);
    lengths.push_back(length);
    if (example.label) ++labels[*example.label];
  }
  std::ranges::sort(lengths);
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  const int64_t longest = lengths.back();
  const int64_t width = longest / static_cast<int64_t>(kBins) + 1;
  std::vector<int64_t> counts(kBins);
  for (const int64_t length : lengths) ++counts[static_cast<size_t>(length / width)];
  found["looked_at"] = looked_at;
  found["mean_length"] = static_cast<double>(sum) / static_cast<double>(looked_at);
  found["median_length"] = lengths[lengths.size() / 2];
  found["longest"] = longest;
  found["bin_width"] = width;
  found["lengths"] = counts;
  if (!labels.empty() && labels.size() <= kMostLabels) {
    Json& counted = found["labels"] = Json::object();
    for (const auto& [label, count] : labels) counted[std::to_string(label)] = count;
  }
  return found;
}

Json start_event(const TrainingRun& run) {
  const Parts& parts = run.parts;
  const Environment environment = run.environment();
  const checkpoint::Owner self = checkpoint::this_process();
  int64_t parameters = 0;
  for (const Weight& weight : parts.model->weights()) {
    parameters += weight.numel();
  }
  Json data = Json::object();
  // Pretraining examples are generated for an epoch, so they cannot be read here.
  const bool has_examples = run.args.task != "pretraining";
  try {
    if (!run.stream) data["train"] = data_statistics(*parts.train_data, has_examples);
  } catch (const Error& error) {  // training reports the same error
    log::debug(error.what());
  }
  if (parts.validation_data) data["validation"] = {{"samples", parts.validation_data->size()}};
  if (parts.test_data) data["test"] = {{"samples", parts.test_data->size()}};
  Json event = {{"run_id", run.state.run_id},
                {"is_restart", run.options.restart || run.args.resume_from_checkpoint == "none"},
                {"step", run.state.step},
                {"max_steps", run.plan.max_steps},
                {"save_steps", run.plan.save_steps},
                {"effective_batch_size", run.state.effective_batch_size},
                {"host", self.host},
                {"pid", self.pid},
                {"device", describe_device(parts.device)},
                {"processes", environment.processes},
                {"threads", environment.threads},
                {"finetune_version", environment.finetune_version},
                {"torch_version", environment.torch_version},
                {"parameters", parameters},
                {"data", std::move(data)},
                {"config", to_json(run.args)},
                {"set_keys", set_keys(run)}};
  add_logged_step(run, event);
  return event;
}

}  // namespace finetune
