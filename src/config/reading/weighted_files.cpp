// SPDX-License-Identifier: MIT
#include "config/reading/weighted_files.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reading/scalars.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr const char* kForm =
    "'train_file' must be a path, a list of paths, or a list of {path: ..., weight: ...}";

bool has_entry_with_names(const Setting& setting) {
  const Node& value = setting.value;
  if (setting.key != "train_file") return false;
  if (value.kind == Node::Kind::kMap) return true;
  return value.kind == Node::Kind::kList &&
         std::any_of(value.items.begin(), value.items.end(),
                     [](const Node& item) { return item.kind == Node::Kind::kMap; });
}

struct Entry {
  Node path;
  Node weight = {.kind = Node::Kind::kPlain, .text = "1"};
};

std::optional<Entry> entry_of(const Node& item) {
  Entry entry;
  if (item.is_scalar()) {
    entry.path = item;
    return entry;
  }
  if (item.kind != Node::Kind::kMap) return std::nullopt;
  for (size_t i = 0; i < item.items.size(); ++i) {
    const Node& value = item.items[i];
    if (!value.is_scalar()) return std::nullopt;
    if (item.names[i] == "path") {
      entry.path = value;
    } else if (item.names[i] == "weight") {
      entry.weight = value;
    } else {
      return std::nullopt;
    }
  }
  if (!entry.path.is_scalar()) return std::nullopt;
  return entry;
}

}  // namespace

std::vector<Setting> split_weighted_files(const std::vector<Setting>& settings,
                                          Problems& problems) {
  std::vector<Setting> all;
  for (const Setting& setting : settings) {
    if (!has_entry_with_names(setting)) {
      all.push_back(setting);
      continue;
    }
    const bool one = setting.value.kind == Node::Kind::kMap;
    const std::vector<Node> items = one ? std::vector<Node>{setting.value} : setting.value.items;
    Node paths = {.kind = Node::Kind::kList};
    Node weights = {.kind = Node::Kind::kList};
    bool well_formed = true;
    for (const Node& item : items) {
      const std::optional<Entry> entry = entry_of(item);
      if (!entry) {
        well_formed = false;
        problems.add(setting.where, kForm);
        break;
      }
      paths.items.push_back(entry->path);
      weights.items.push_back(entry->weight);
    }
    if (!well_formed) continue;
    for (Node& weight : weights.items) weight.kind = Node::Kind::kQuoted;
    all.push_back({setting.key, setting.where, std::move(paths)});
    all.push_back({"train_file_weights", setting.where, std::move(weights)});
  }
  return all;
}

std::optional<std::string> problem_of_weights(const TrainingArgs& args) {
  const std::vector<std::string>& weights = args.train_file_weights;
  if (weights.empty()) return std::nullopt;
  if (weights.size() != args.train_file.size()) {
    return format_text("train_file has {} {} and train_file_weights {}; give each entry one weight",
                       args.train_file.size(), args.train_file.size() == 1 ? "entry" : "entries",
                       weights.size());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const Node written = {.kind = Node::Kind::kPlain, .text = weights[i]};
    const std::optional<double> weight = parse_double(written).value;
    if (!weight || !std::isfinite(*weight) || *weight <= 0) {
      return "the weight of '" + args.train_file[i] + "' must be a number above 0, not '" +
             weights[i] + "'; remove unwanted entries from train_file";
    }
  }
  if (args.max_train_samples) {
    return "max_train_samples and weights in train_file exclude each other: the first N "
           "samples of a mixture mean nothing";
  }
  return std::nullopt;
}

}  // namespace finetune
