// SPDX-License-Identifier: MIT
#include "optim/schedule_kwargs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) result += (result.empty() ? "" : ", ") + name;
  return result;
}

// transformers converts text that is a number when it parses a dictionary from text.
std::optional<double> to_number(const nlohmann::ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

ScheduleKwargs::ScheduleKwargs(const ScheduleOptions& options)
    : type_(options.type),
      values_(std::make_unique<nlohmann::ordered_json>(nlohmann::ordered_json::object())) {
  if (options.kwargs_json.empty()) return;
  *values_ = parse_json(options.kwargs_json, "lr_scheduler_kwargs", ErrorKind::kConfig,
                        {.max_bytes = size_t{1} << 20, .max_depth = 8});
  if (values_->is_null()) *values_ = nlohmann::ordered_json::object();
  if (!values_->is_object()) {
    throw Error(ErrorKind::kConfig,
                "lr_scheduler_kwargs: must be a mapping of names to values, for example "
                "{\"num_cycles\": 2}, but is " +
                    values_->dump());
  }
}

ScheduleKwargs::~ScheduleKwargs() = default;

void ScheduleKwargs::reject(const std::string& name, const std::string& problem) const {
  throw Error(ErrorKind::kConfig, "lr_scheduler_kwargs: " + (name.empty() ? "" : name + " ") +
                                      problem + " (lr_scheduler_type is '" + type_ + "')");
}

const nlohmann::ordered_json* ScheduleKwargs::find(const std::string& name) {
  known_.push_back(name);
  const auto found = values_->find(name);
  return found == values_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> ScheduleKwargs::number(const std::string& name, KwargRange range) {
  const nlohmann::ordered_json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = to_number(*value);
  if (!number || !std::isfinite(*number)) reject(name, "must be a number, not " + value->dump());
  if (*number < range.min || *number > range.max) {
    std::string limits;
    if (std::isfinite(range.min)) limits = "at least " + format_double(range.min);
    if (std::isfinite(range.max)) {
      limits += (limits.empty() ? "at most " : " and at most ") + format_double(range.max);
    }
    reject(name, "must be " + limits + ", not " + value->dump());
  }
  return number;
}

double ScheduleKwargs::number(const std::string& name, double fallback, KwargRange range) {
  return number(name, range).value_or(fallback);
}

std::optional<int64_t> ScheduleKwargs::integer(const std::string& name, int64_t min) {
  const std::optional<double> value =
      number(name, KwargRange{.min = static_cast<double>(min), .max = 0x1p53});
  if (!value) return std::nullopt;
  if (*value != std::floor(*value)) {
    reject(name, "must be a whole number, not " + format_double(*value));
  }
  return static_cast<int64_t>(*value);
}

int64_t ScheduleKwargs::integer(const std::string& name, int64_t fallback, int64_t min) {
  return integer(name, min).value_or(fallback);
}

bool ScheduleKwargs::flag(const std::string& name, bool fallback) {
  const nlohmann::ordered_json* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  if (*value == "true") return true;
  if (*value == "false") return false;
  reject(name, "must be true or false, not " + value->dump());
}

std::string ScheduleKwargs::choice(const std::string& name, const std::string& fallback,
                                   const std::vector<std::string>& known) {
  const nlohmann::ordered_json* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) {
    const auto text = value->get<std::string>();
    if (std::find(known.begin(), known.end(), text) != known.end()) return text;
  }
  reject(name, "must be one of " + joined(known) + ", not " + value->dump());
}

void ScheduleKwargs::finish() const {
  for (const auto& [name, value] : values_->items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    reject("", "unknown key '" + name + "': " +
                   (known_.empty() ? "this schedule takes none" : "known are " + joined(known_)));
  }
}

}  // namespace finetune
