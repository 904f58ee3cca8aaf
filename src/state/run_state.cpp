// SPDX-License-Identifier: MIT
#include "finetune/state/run_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

template <class State, class Visitor>
void describe_environment(State& environment, Visitor&& field) {
  field("finetune_version", environment.finetune_version);
  field("torch_version", environment.torch_version);
  field("device", environment.device);
  field("cpu_capability", environment.cpu_capability);
  field("threads", environment.threads);
  field("processes", environment.processes);
  field("processors", environment.processors);
  field("machine_memory", environment.machine_memory);
  field("arithmetic", environment.arithmetic);
}

// Lists every member once, for writing and for reading.
template <class State, class Visitor>
void describe(State& s, Visitor&& field) {
  field("run_id", s.run_id);
  field("step", s.step);
  field("updates", s.updates);
  field("epoch", s.position.epoch);
  field("sample", s.position.sample);
  field("effective_batch_size", s.effective_batch_size);
  field("length_group", s.length_group);
  field("shard_rows", s.shard_rows);
  field("shard_threads", s.shard_threads);
  field("max_steps", s.max_steps);
  field("window_loss", s.window_loss);
  field("window_measures", s.window_measures);
  field("window_measured", s.window_measured);
  field("window_first_step", s.window_first_step);
  field("total_loss", s.total_loss);
  field("total_flos", s.total_flos);
  field("tokens_seen", s.tokens_seen);
  field("last_grad_norm", s.last_grad_norm);
  field("last_learning_rate", s.last_learning_rate);
  field("nonfinite_updates", s.nonfinite_updates);
  field("skipped_updates", s.divergence.skipped_updates);
  field("rollbacks", s.divergence.rollbacks);
  field("divergence_tries", s.divergence.tries);
  field("faulty_step", s.divergence.faulty_step);
  field("watched_until", s.divergence.watched_until);
  field("left_out", s.divergence.left_out);
  field("recent_losses", s.divergence.recent_losses);
  field("recent_grad_norms", s.divergence.recent_grad_norms);
  field("asked_train_batch", s.cut.asked_train);
  field("cut_train_batch", s.cut.train);
  field("asked_eval_batch", s.cut.asked_eval);
  field("cut_eval_batch", s.cut.eval);
  field("early_stopping_counter", s.early_stopping_counter);
  field("stop_early", s.stop_early);
  field("evaluation_pending", s.evaluation_pending);
  field("lost_best_step", s.lost_best_step);
  field("automatic_steps", s.automatic_steps);
  field("origin", s.origin);
  field("chat_date", s.chat_date);
  field("finished", s.finished);
  field("has_manifest", s.has_manifest);
  field("seconds", s.seconds);
  field("sessions", s.sessions);
  field("schedule", s.schedule);
  field("identity_data", s.identity.data);
  field("identity_validation", s.identity.validation);
  field("identity_tokenizer", s.identity.tokenizer);
  field("identity_model", s.identity.model);
  field("identity_chat_template", s.identity.chat_template);
  field("identity_guides", s.identity.guides);
  field("inputs", s.inputs);
  describe_environment(s.environment, field);
  field("config", s.config);
  field("memory", s.memory);
  field("stream", s.stream);
  field("session", s.session);
}

// Members added after the first checkpoints of this format version.
constexpr std::string_view kCameLater[] = {"memory",
                                           "length_group",
                                           "processes",
                                           "shard_rows",
                                           "session",
                                           "processors",
                                           "machine_memory",
                                           "arithmetic",
                                           "skipped_updates",
                                           "rollbacks",
                                           "divergence_tries",
                                           "faulty_step",
                                           "watched_until",
                                           "left_out",
                                           "recent_losses",
                                           "recent_grad_norms",
                                           "asked_train_batch",
                                           "cut_train_batch",
                                           "asked_eval_batch",
                                           "cut_eval_batch",
                                           "has_manifest",
                                           "inputs",
                                           "lost_best_step",
                                           "shard_threads",
                                           "stream",
                                           "chat_date",
                                           "identity_chat_template",
                                           "identity_guides",
                                           "window_measures",
                                           "window_measured"};

constexpr size_t kLongestList = 1 << 20;

constexpr IntegerRange kCount = {.low = 0, .high = int64_t{1} << 62};

class StateFields : public JsonFields {
 public:
  using JsonFields::JsonFields;

  template <class Value>
  void operator()(const char* name, Value& value) const {
    if (find(name) == nullptr && std::ranges::find(kCameLater, name) != std::end(kCameLater)) {
      return;
    }
    take(name, value);
  }

 private:
  void take(const char* name, std::string& value) const { value = text(name); }
  void take(const char* name, int64_t& value) const { value = integer(name, kCount); }
  void take(const char* name, double& value) const { value = number(name); }
  void take(const char* name, bool& value) const { value = flag(name); }
  void take(const char* name, Json& value) const { value = object(name); }
  void take(const char* name, std::vector<double>& value) const {
    value = numbers(name, {}, kLongestList);
  }
  // The first checkpoints of this format version have at most one step, under another name.
  void take(const char* name, std::vector<int64_t>& value) const {
    if (find(name) != nullptr) {
      value = integers(name, kCount);
    } else if (find("automatic_step") != nullptr) {
      value = {integer("automatic_step", kCount)};
    }
  }
  void take(const char* name, std::vector<LeftOut>& value) const {
    value.clear();
    for (const JsonFields& item : items(name, kLongestList)) {
      value.push_back({.position = {.epoch = item.integer("epoch", kCount),
                                    .sample = item.integer("sample", kCount)},
                       .samples = item.integer("samples", kCount)});
    }
  }
};

template <class Value>
void put(Json& json, const Value& value) {
  json = value;
}

void put(Json& json, const std::vector<LeftOut>& list) {
  json = Json::array();
  for (const LeftOut& out : list) {
    json.push_back(
        {{"epoch", out.position.epoch}, {"sample", out.position.sample}, {"samples", out.samples}});
  }
}

}  // namespace

MemoryCut usable_cut(const MemoryCut& saved, int64_t train, int64_t eval,
                     int64_t samples_per_update) {
  MemoryCut cut;
  if (saved.train > 0 && saved.asked_train == train && samples_per_update % saved.train == 0) {
    cut.asked_train = train;
    cut.train = saved.train;
  }
  if (saved.eval > 0 && saved.asked_eval == eval && eval % saved.eval == 0) {
    cut.asked_eval = eval;
    cut.eval = saved.eval;
  }
  return cut;
}

std::string RunState::to_text() const {
  Json json = {{"format_version", kFormatVersion}};
  describe(*this, [&](const char* name, const auto& value) { put(json[name], value); });
  return json.dump(2) + "\n";
}

RunState RunState::parse(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  const StateFields fields(json, where);
  const auto version = json.find("format_version");
  if (version != json.end() && version->is_number_integer() && *version > kFormatVersion) {
    throw checkpoint::NewerFormat(where, version->get<int64_t>(), kFormatVersion);
  }
  if (version == json.end() || *version != kFormatVersion) {
    throw Error(
        ErrorKind::kData,
        format_text("{}: has the format version {}, this finetune reads {}; continue with the "
                    "version that wrote it",
                    where, version == json.end() ? "(none)" : version->dump(), kFormatVersion));
  }
  RunState state;
  describe(state, fields);
  if (state.effective_batch_size < 1) {
    throw Error(ErrorKind::kData, where + ": 'effective_batch_size' must be above 0");
  }
  return state;
}

}  // namespace finetune
