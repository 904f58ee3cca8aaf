// SPDX-License-Identifier: MIT
#include "finetune/state/run_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Every member once, for writing and for reading.
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
  field("finished", s.finished);
  field("has_manifest", s.has_manifest);
  field("seconds", s.seconds);
  field("sessions", s.sessions);
  field("schedule", s.schedule);
  field("identity_data", s.identity.data);
  field("identity_validation", s.identity.validation);
  field("identity_tokenizer", s.identity.tokenizer);
  field("identity_model", s.identity.model);
  field("inputs", s.inputs);
  field("finetune_version", s.environment.finetune_version);
  field("torch_version", s.environment.torch_version);
  field("device", s.environment.device);
  field("cpu_capability", s.environment.cpu_capability);
  field("threads", s.environment.threads);
  field("processes", s.environment.processes);
  field("processors", s.environment.processors);
  field("machine_memory", s.environment.machine_memory);
  field("config", s.config);
  field("memory", s.memory);
  field("stream", s.stream);
  field("session", s.session);
}

// These came later than the first checkpoints of this format version.
constexpr std::string_view kCameLater[] = {
    "memory",          "length_group",     "processes",         "shard_rows",
    "session",         "processors",       "machine_memory",    "skipped_updates",
    "rollbacks",       "divergence_tries", "faulty_step",       "watched_until",
    "left_out",        "recent_losses",    "recent_grad_norms", "asked_train_batch",
    "cut_train_batch", "asked_eval_batch", "cut_eval_batch",    "has_manifest",
    "inputs",          "lost_best_step",   "shard_threads",     "stream"};

constexpr size_t kLongestList = 1 << 20;

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  template <class Value>
  void operator()(const char* name, Value& value) const {
    if (!json_.contains(name) && std::ranges::find(kCameLater, name) != std::end(kCameLater)) {
      return;
    }
    read(name, value);
  }

 private:
  void read(const char* name, std::string& value) const {
    const Json& found = at(name);
    if (!found.is_string()) refuse(name, "a text");
    value = found.get<std::string>();
  }
  void read(const char* name, int64_t& value) const {
    const Json& found = at(name);
    if (!found.is_number_integer() || found.get<double>() < 0 || found.get<double>() > 0x1p62) {
      refuse(name, "a whole number that is not negative");
    }
    value = found.get<int64_t>();
  }
  // The first checkpoints of this format version have one at most, under its own name.
  void read(const char* name, std::vector<int64_t>& value) const {
    value.clear();
    if (!json_.contains(name)) {
      if (!at("automatic_step").is_null()) read("automatic_step", value.emplace_back());
      return;
    }
    const Json& found = at(name);
    if (!found.is_array()) refuse(name, "a list");
    for (const Json& item : found) {
      if (!item.is_number_integer() || item.get<double>() < 0 || item.get<double>() > 0x1p62) {
        refuse(name, "a list of steps");
      }
      value.push_back(item.get<int64_t>());
    }
  }
  void read(const char* name, double& value) const {
    const Json& found = at(name);
    if (!found.is_number()) refuse(name, "a number");
    value = found.get<double>();
  }
  void read(const char* name, bool& value) const {
    const Json& found = at(name);
    if (!found.is_boolean()) refuse(name, "true or false");
    value = found.get<bool>();
  }
  void read(const char* name, Json& value) const {
    const Json& found = at(name);
    if (!found.is_object()) refuse(name, "an object");
    value = found;
  }
  void read(const char* name, std::vector<double>& value) const {
    const Json& found = at(name);
    value.clear();
    for (const Json& number : list(name, found)) {
      if (!number.is_number()) refuse(name, "a list of numbers");
      value.push_back(number.get<double>());
    }
  }
  void read(const char* name, std::vector<LeftOut>& value) const {
    value.clear();
    for (const Json& item : list(name, at(name))) {
      if (!item.is_object()) refuse(name, "a list of objects");
      LeftOut& out = value.emplace_back();
      const Reader of_item(item, where_ + ": in '" + name + "'");
      of_item.read("epoch", out.position.epoch);
      of_item.read("sample", out.position.sample);
      of_item.read("samples", out.samples);
    }
  }

  [[nodiscard]] const Json& list(const char* name, const Json& found) const {
    if (!found.is_array() || found.size() > kLongestList) refuse(name, "a list");
    return found;
  }
  [[nodiscard]] const Json& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) refuse(name, "there");
    return *found;
  }
  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    throw Error(ErrorKind::kData, where_ + ": '" + name + "' must be " + expected);
  }

  const Json& json_;
  std::string where_;
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

std::string RunState::to_text() const {
  Json json = {{"format_version", kFormatVersion}};
  describe(*this, [&](const char* name, const auto& value) { put(json[name], value); });
  return json.dump(2) + "\n";
}

RunState RunState::parse(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must hold a JSON object");
  const auto version = json.find("format_version");
  if (version == json.end() || *version != kFormatVersion) {
    throw Error(ErrorKind::kData, where + ": has the format version " +
                                      (version == json.end() ? "(none)" : version->dump()) +
                                      ", this finetune reads " + std::to_string(kFormatVersion) +
                                      "; go on with the version that wrote it");
  }
  RunState state;
  describe(state, Reader(json, where));
  if (state.effective_batch_size < 1) {
    throw Error(ErrorKind::kData, where + ": 'effective_batch_size' must be above 0");
  }
  return state;
}

}  // namespace finetune
