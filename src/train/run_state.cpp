// SPDX-License-Identifier: MIT
#include "train/run_state.h"

#include <cmath>
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
  field("max_steps", s.max_steps);
  field("window_loss", s.window_loss);
  field("window_first_step", s.window_first_step);
  field("total_loss", s.total_loss);
  field("total_flos", s.total_flos);
  field("tokens_seen", s.tokens_seen);
  field("last_grad_norm", s.last_grad_norm);
  field("last_learning_rate", s.last_learning_rate);
  field("nonfinite_updates", s.nonfinite_updates);
  field("early_stopping_counter", s.early_stopping_counter);
  field("stop_early", s.stop_early);
  field("evaluation_pending", s.evaluation_pending);
  field("automatic_steps", s.automatic_steps);
  field("origin", s.origin);
  field("finished", s.finished);
  field("seconds", s.seconds);
  field("sessions", s.sessions);
  field("schedule", s.schedule);
  field("identity_data", s.identity.data);
  field("identity_validation", s.identity.validation);
  field("identity_tokenizer", s.identity.tokenizer);
  field("identity_model", s.identity.model);
  field("finetune_version", s.environment.finetune_version);
  field("torch_version", s.environment.torch_version);
  field("device", s.environment.device);
  field("cpu_capability", s.environment.cpu_capability);
  field("threads", s.environment.threads);
  field("config", s.config);
  field("memory", s.memory);
}

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  void operator()(const char* name, std::string& value) const {
    const Json& found = at(name);
    if (!found.is_string()) refuse(name, "a text");
    value = found.get<std::string>();
  }
  void operator()(const char* name, int64_t& value) const {
    const Json& found = at(name);
    if (!found.is_number_integer() || found.get<double>() < 0 || found.get<double>() > 0x1p62) {
      refuse(name, "a whole number that is not negative");
    }
    value = found.get<int64_t>();
  }
  // The first checkpoints of this format version have one at most, under its own name.
  void operator()(const char* name, std::vector<int64_t>& value) const {
    value.clear();
    if (!json_.contains(name)) {
      if (!at("automatic_step").is_null()) (*this)("automatic_step", value.emplace_back());
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
  void operator()(const char* name, double& value) const {
    const Json& found = at(name);
    if (!found.is_number()) refuse(name, "a number");
    value = found.get<double>();
  }
  void operator()(const char* name, bool& value) const {
    const Json& found = at(name);
    if (!found.is_boolean()) refuse(name, "true or false");
    value = found.get<bool>();
  }
  void operator()(const char* name, Json& value) const {
    // Came later than the first checkpoints of this format version.
    if (std::string_view(name) == "memory" && !json_.contains(name)) return;
    const Json& found = at(name);
    if (!found.is_object()) refuse(name, "an object");
    value = found;
  }

 private:
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
