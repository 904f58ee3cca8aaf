// SPDX-License-Identifier: MIT
#include "config/schedule_arguments.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "finetune/base/json.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

// The parameters of transformers' schedule functions (optimization.py), of torch's
// ReduceLROnPlateau and of transformers' GreedyLR.
const std::map<std::string, std::vector<std::string>>& arguments_by_type() {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"linear", {}},
      {"cosine", {"num_cycles"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"polynomial", {"lr_end", "power"}},
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"inverse_sqrt", {"timescale"}},
      {"reduce_lr_on_plateau",
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}},
      {"cosine_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio",
        "num_cycles"}},
      {"greedy",
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "warmup", "min_lr",
        "max_lr", "eps", "verbose", "smooth", "window_size", "reset_start"}},
  };
  return table;
}

}  // namespace

std::string find_schedule_problem(const std::string& type, const JsonText& arguments) {
  const nlohmann::ordered_json given =
      arguments.empty() ? nlohmann::ordered_json::object()
                        : parse_json(arguments.text, "lr_scheduler_kwargs", ErrorKind::kConfig);
  const std::vector<std::string>& known = arguments_by_type().at(type);
  const std::string list = join(known);
  for (const auto& [name, value] : given.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return "lr_scheduler_kwargs: '" + type + "' takes no '" + name + "' (" +
             (list.empty() ? "it takes nothing" : "it takes " + list) + ")";
    }
  }
  if (type == "cosine_with_min_lr" || type == "cosine_warmup_with_min_lr") {
    const size_t both = given.count("min_lr") + given.count("min_lr_rate");
    if (both != 1) {
      return "'lr_scheduler_type: " + type +
             "' needs either min_lr or min_lr_rate in lr_scheduler_kwargs";
    }
  }
  if (type == "warmup_stable_decay" && !given.contains("num_decay_steps")) {
    return "'lr_scheduler_type: warmup_stable_decay' needs num_decay_steps in lr_scheduler_kwargs";
  }
  return "";
}

}  // namespace finetune
