// SPDX-License-Identifier: MIT
#include "finetune/config/techniques.h"

#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/keys/words.h"
#include "config/reading/problems.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Faults = std::vector<std::string>;

// libtorch alone needs more; a value such as 1000 is not meant in bytes.
constexpr int64_t kLeastBudget = 16LL << 20;
constexpr int64_t kMostBudget = 1LL << 50;

// The entries of a mapping; every fault is a sentence that begins with the key. Collects them all.
class Mapping {
 public:
  Mapping(std::string key, const JsonText& text, Faults& faults)
      : key_(std::move(key)), faults_(faults) {
    if (text.empty()) return;
    values_ = parse_json(text.text, key_, ErrorKind::kConfig);
    if (values_.is_object()) return;
    values_ = Json::object();
    fail("must be a mapping");
  }

  // Adds a fault for every name that is not in `known`; `taker` names the owner of the names:
  // "'optim: sgd'".
  void allow(const std::vector<std::string>& known, const std::string& taker) {
    for (const auto& [name, value] : values_.items()) {
      if (contains(known, name)) continue;
      fail("has no '" + name + "'" + did_you_mean(name, known) + "; " + taker + " takes " +
           (known.empty() ? "nothing here" : join(known)));
    }
  }

  void take(const char* name, bool& value) { read(name, value); }
  void take(const char* name, int64_t& value, int64_t least = 0) {
    read(name, value, IntegerRange{.low = least, .high = int64_t{1} << 62});
  }
  void take(const char* name, double& value) {
    read(name, value, NumberRange{.low = 0, .high = 1, .below_high = true});
  }

  [[nodiscard]] bool has(const char* name) const { return values_.contains(name); }
  void fail(const std::string& message) { faults_.push_back(key_ + " " + message); }

 private:
  template <class Value, class... Range>
  void read(const char* name, Value& value, const Range&... range) {
    try {
      JsonFields(values_, key_, ErrorKind::kConfig).read(name, value, range...);
    } catch (const Error& error) {
      faults_.emplace_back(error.what());
    }
  }

  std::string key_;
  Json values_ = Json::object();
  Faults& faults_;
};

ActivationCheckpointing read_checkpointing(const TrainingArgs& args, Faults& faults) {
  ActivationCheckpointing result{.enabled = args.activation_checkpointing.value_or(false)};
  Mapping kwargs("activation_checkpointing_kwargs", args.activation_checkpointing_kwargs, faults);
  kwargs.allow({"every_n_layers", "offload", "selective", "use_reentrant", "preserve_rng_state"},
               "activation_checkpointing");
  kwargs.take("every_n_layers", result.every_n_layers, 1);
  kwargs.take("offload", result.offload);
  kwargs.take("selective", result.selective);
  for (const char* name : {"use_reentrant", "preserve_rng_state"}) {
    bool ignored = false;
    kwargs.take(name, ignored);
  }
  return result;
}

OptimizerChoice read_optimizer(const TrainingArgs& args, Faults& faults) {
  const OptimizerNames* optimizer = find_optimizer_of(args.optim);
  FT_CHECK(optimizer != nullptr, "loading refuses other optimizers");
  OptimizerChoice result{.kind = optimizer->name};
  Mapping arguments("optim_args", args.optim_args, faults);
  std::vector<std::string> known;
  for (const OptimizerArgument& argument : optimizer->arguments) known.push_back(argument.name);
  arguments.allow(known, "'optim: " + args.optim + "'");
  for (const OptimizerArgument& one : optimizer->arguments) {
    OptimizerValue& value = result.arguments[one.name] = one.fallback;
    std::visit([&](auto& typed) { arguments.take(one.name.c_str(), typed); }, value);
  }
  const std::string problem = optimizer->problem ? optimizer->problem(result.arguments) : "";
  if (!problem.empty()) arguments.fail(problem);
  return result;
}

std::optional<int64_t> read_budget(const TrainingArgs& args, Faults& faults) {
  if (!args.memory_budget) return std::nullopt;
  const std::string problem = problem_of_memory_size(*args.memory_budget);
  if (!problem.empty()) {
    faults.push_back("'memory_budget' " + problem);
    return std::nullopt;
  }
  return parse_memory_size(*args.memory_budget);
}

template <class Read>
auto read_or_throw(const TrainingArgs& args, Read read) {
  Faults faults;
  auto result = read(args, faults);
  if (!faults.empty()) throw Error(ErrorKind::kConfig, faults.front());
  return result;
}

void note_what_has_no_effect(LoadedConfig& config, const std::string& where) {
  Faults ignored;
  const Mapping kwargs("activation_checkpointing_kwargs",
                       config.args.activation_checkpointing_kwargs, ignored);
  std::string names;
  for (const char* name : {"use_reentrant", "preserve_rng_state"}) {
    if (kwargs.has(name)) names += (names.empty() ? "'" : " and '") + std::string(name) + "'";
  }
  if (names.empty()) return;
  config.notes.push_back(where + ": " + names +
                         " of activation_checkpointing_kwargs: no effect here, dropout is always "
                         "repeated exactly and there is one way to compute again");
}

}  // namespace

ActivationCheckpointing checkpointing_of(const TrainingArgs& args) {
  return read_or_throw(args, read_checkpointing);
}

OptimizerChoice optimizer_of(const TrainingArgs& args) {
  return read_or_throw(args, read_optimizer);
}

FourBits four_bits_of(const TrainingArgs& args) {
  if (args.load_in_4bit == "auto") return FourBits::kAuto;
  return args.load_in_4bit == "true" ? FourBits::kYes : FourBits::kNo;
}

std::optional<int64_t> memory_budget_of(const TrainingArgs& args) {
  return read_or_throw(args, read_budget);
}

std::optional<int64_t> parse_memory_size(std::string_view text) {
  static const std::map<std::string, double, std::less<>> units = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(' ')) text.remove_prefix(1);
  const auto unit = units.find(text);
  if (unit == units.end()) return std::nullopt;
  const double bytes = number * unit->second;
  if (bytes >= 0x1p62) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string problem_of_memory_size(std::string_view text) {
  const std::string shown(text);
  const std::optional<int64_t> bytes = parse_memory_size(text);
  if (!bytes) return "must be a size such as 1000MiB, 1GiB or 900MB, not '" + shown + "'";
  if (*bytes >= kLeastBudget && *bytes <= kMostBudget) return "";
  std::string problem = "must lie between 16MiB and 1024TiB, not '" + shown + "'";
  const bool has_unit = text.find_first_not_of("0123456789.") != std::string_view::npos;
  if (has_unit || *bytes == 0 || *bytes > kMostBudget) return problem;
  // Few are GiB, as in the name of a GPU, several hundred MiB.
  return problem + ", which counts bytes (did you mean " + shown + (*bytes < 256 ? "GiB" : "MiB") +
         "?)";
}

void check_techniques(LoadedConfig& config, Problems& problems) {
  const auto report = [&](std::string key, const char* old_name, auto read) {
    if (!config.is_set(key) && old_name != nullptr && config.is_set(old_name)) key = old_name;
    Faults faults;
    (void)read(config.args, faults);
    for (const std::string& fault : faults) problems.add(config.where(key), fault);
    return config.where(key);
  };
  const std::string where = report("activation_checkpointing_kwargs",
                                   "gradient_checkpointing_kwargs", read_checkpointing);
  note_what_has_no_effect(config, where);
  report("optim_args", nullptr, read_optimizer);
  report("memory_budget", nullptr, read_budget);
}

}  // namespace finetune
