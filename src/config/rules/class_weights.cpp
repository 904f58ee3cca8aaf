// SPDX-License-Identifier: MIT
#include "finetune/config/class_weights.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "class_weights";
constexpr NumberRange kWeights = {.low = 1e-6, .high = 1e6};

}  // namespace

ClassWeightChoice class_weights_of(const TaskArgs& args) {
  ClassWeightChoice choice;
  if (args.class_weights.empty()) return choice;
  const Json json = parse_json(args.class_weights.text, kKey, ErrorKind::kConfig);
  if (json == Json("none")) return choice;
  if (json == Json("balanced")) {
    choice.balanced = true;
    return choice;
  }
  if (!json.is_array() && !json.is_object()) {
    throw Error(ErrorKind::kConfig,
                "class_weights must be none, balanced, a list of weights or a mapping of labels to "
                "weights, not " +
                    json.dump());
  }
  if (json.empty()) {
    throw Error(ErrorKind::kConfig,
                "class_weights is empty; leave it out, or give each label a weight");
  }
  // A list is read like a mapping of the labels' numbers.
  Json labelled = Json::object();
  for (const auto& [label, weight] : json.items()) labelled[label] = weight;
  const JsonFields weights(labelled, kKey, ErrorKind::kConfig);
  for (const auto& [label, weight] : labelled.items()) {
    const double number = weights.number(label.c_str(), kWeights);
    if (json.is_array()) {
      choice.in_order.push_back(number);
    } else {
      choice.by_label.emplace_back(label, number);
    }
  }
  return choice;
}

std::optional<std::string> problem_of_class_weights(const TaskArgs& args) {
  try {
    (void)class_weights_of(args);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace finetune
