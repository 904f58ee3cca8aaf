// SPDX-License-Identifier: MIT
#include "task/setup/class_weighing.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/class_weights.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

// Returns the number of targets of each class: samples, or labelled tokens.
std::vector<int64_t> count_classes(const Dataset& data, int64_t classes) {
  constexpr int64_t kSamplesBetweenPolls = 4096;
  std::vector<int64_t> counts(static_cast<size_t>(classes), 0);
  const auto count = [&](int64_t label) {
    if (label >= 0 && label < classes) ++counts[static_cast<size_t>(label)];
  };
  for (int64_t i = 0; i < data.size(); ++i) {
    if (i % kSamplesBetweenPolls == 0) interrupt::throw_if_requested("counting classes");
    const Example example = data.get(i);
    if (example.label) count(*example.label);
    for (const int32_t label : example.labels) count(label);
  }
  return counts;
}

std::vector<double> named_weights(const SetupContext& context, const LabelMap& labels,
                                  const ClassWeightChoice& choice) {
  std::vector<double> weights(static_cast<size_t>(labels.size()), 1.0);
  for (const auto& [label, weight] : choice.by_label) {
    const std::optional<int64_t> number = labels.find(label);
    if (!number) {
      refuse_key(context.options.locations, "class_weights",
                 "there is no label '" + label + "'; the labels are " + labels.list());
    }
    weights[static_cast<size_t>(*number)] = weight;
  }
  return weights;
}

}  // namespace

std::vector<double> balanced_weights(const std::vector<int64_t>& counts) {
  double total = 0.0;
  double classes = 0.0;
  for (const int64_t count : counts) {
    total += static_cast<double>(count);
    classes += count > 0 ? 1.0 : 0.0;
  }
  std::vector<double> weights;
  for (const int64_t count : counts) {
    weights.push_back(count == 0 ? 1.0 : total / (classes * static_cast<double>(count)));
  }
  return weights;
}

std::vector<double> find_class_weights(const SetupContext& context, const LabelMap& labels,
                                       const Dataset* train_data) {
  const ClassWeightChoice choice = class_weights_of(context.options);
  if (choice.empty()) return {};
  const auto size = static_cast<size_t>(labels.size());
  if (!choice.by_label.empty()) return named_weights(context, labels, choice);
  if (!choice.balanced) {
    if (choice.in_order.size() == size) return choice.in_order;
    refuse_key(context.options.locations, "class_weights",
               "lists " + std::to_string(choice.in_order.size()) + " weights for the " +
                   std::to_string(size) + " labels " + labels.list() + "; give one for each");
  }
  if (train_data == nullptr) {
    if (context.trained.class_weights.size() == size) return context.trained.class_weights;
    refuse_key(context.options.locations, "class_weights",
               "balanced is counted in the training data, of which the model keeps no record; list "
               "the weights, or leave the key out");
  }
  const std::vector<int64_t> counts = count_classes(*train_data, labels.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) continue;
    log::warning("class_weights: the training data hold no '" +
                 labels.name(static_cast<int64_t>(i)) + "'; its weight is 1");
  }
  return balanced_weights(counts);
}

}  // namespace finetune
