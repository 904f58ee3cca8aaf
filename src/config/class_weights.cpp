// SPDX-License-Identifier: MIT
#include "finetune/config/class_weights.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeast = 1e-6;
constexpr double kMost = 1e6;

std::optional<std::string> read(const TrainingArgs& args, ClassWeightChoice& choice) {
  if (args.class_weights.empty()) return std::nullopt;
  const Json json = parse_json(args.class_weights.text, "class_weights", ErrorKind::kConfig);
  if (json == Json("none")) return std::nullopt;
  if (json == Json("balanced")) {
    choice.balanced = true;
    return std::nullopt;
  }
  if (!json.is_array() && !json.is_object()) {
    return "class_weights must be none, balanced, a list of weights or a mapping of labels to "
           "weights, not " +
           json.dump();
  }
  if (json.empty()) return "class_weights is empty; leave it out, or give each label a weight";
  for (const auto& [label, weight] : json.items()) {
    const bool fits =
        weight.is_number() && weight.get<double>() >= kLeast && weight.get<double>() <= kMost;
    if (!fits) {
      return "class_weights: the weight " + weight.dump() + " of " +
             (json.is_array() ? "label number " : "label ") + "'" + label +
             "' must be a number from 0.000001 to 1000000";
    }
    if (json.is_array()) {
      choice.in_order.push_back(weight.get<double>());
    } else {
      choice.by_label.emplace_back(label, weight.get<double>());
    }
  }
  return std::nullopt;
}

}  // namespace

ClassWeightChoice class_weights_of(const TrainingArgs& args) {
  ClassWeightChoice choice;
  if (const auto problem = read(args, choice)) throw Error(ErrorKind::kConfig, *problem);
  return choice;
}

std::optional<std::string> problem_of_class_weights(const TrainingArgs& args) {
  ClassWeightChoice ignored;
  return read(args, ignored);
}

}  // namespace finetune
