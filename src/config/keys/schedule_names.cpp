// SPDX-License-Identifier: MIT
#include "finetune/config/schedule_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/keys/schedule_problems.h"
#include "config/keys/words.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

std::deque<ScheduleNames>& schedule_rows() {
  static std::deque<ScheduleNames> rows = {
#define FINETUNE_SCHEDULE(TYPE, ...) ScheduleNames{.type = #TYPE, __VA_ARGS__},
#include "finetune/config/schedules.def"
#undef FINETUNE_SCHEDULE
  };
  return rows;
}

}  // namespace

const std::deque<ScheduleNames>& schedule_names() { return schedule_rows(); }

const ScheduleNames* find_schedule_names(std::string_view type) {
  const auto found = std::ranges::find(schedule_rows(), type, &ScheduleNames::type);
  return found == schedule_rows().end() ? nullptr : &*found;
}

void add_schedule_names(ScheduleNames names) {
  FT_CHECK(find_schedule_names(names.type) == nullptr, "a new schedule: " + names.type);
  schedule_rows().push_back(std::move(names));
}

std::string find_schedule_problem(const std::string& type, const JsonText& arguments) {
  const nlohmann::ordered_json given =
      arguments.empty() ? nlohmann::ordered_json::object()
                        : parse_json(arguments.text, "lr_scheduler_kwargs", ErrorKind::kConfig);
  const ScheduleNames* schedule = find_schedule_names(type);
  FT_CHECK(schedule != nullptr, "loading refuses other schedules");
  const std::vector<std::string>& known = schedule->arguments;
  for (const auto& [name, value] : given.items()) {
    if (contains(known, name)) continue;
    return "lr_scheduler_kwargs: '" + type + "' takes no '" + name + "' (" +
           (known.empty() ? "it takes nothing" : "it takes " + join(known)) + ")";
  }
  const std::vector<std::string>& one_of = schedule->one_of;
  const auto count =
      std::ranges::count_if(one_of, [&](const std::string& name) { return given.contains(name); });
  if (one_of.empty() || count == 1) return "";
  std::string names;
  for (const std::string& name : one_of) names += (names.empty() ? "" : " or ") + name;
  return "'lr_scheduler_type: " + type + "' needs " + (one_of.size() > 1 ? "either " : "") + names +
         " in lr_scheduler_kwargs";
}

}  // namespace finetune
