// SPDX-License-Identifier: MIT
#include "config/reading/train_file.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reading/scalars.h"
#include "finetune/base/text.h"
#include "finetune/config/training_sets.h"

namespace finetune {
namespace {

constexpr const char* kForm =
    "'train_file' must be a path, a list of paths, a list of {path: ..., weight: ...}, or a "
    "mapping of names to {path: ..., loss_type: ..., loss_kwargs: ...}";

// The parts of an entry that has any.
struct Entry {
  Node path;
  Node weight = {.kind = Node::Kind::kPlain, .text = "1"};
  Node loss = {.kind = Node::Kind::kMap};  // loss_type, loss_kwargs
};

// `problem`: what is wrong where nothing is returned.
std::optional<Entry> entry_of(const Node& item, bool has_loss, std::string& problem) {
  Entry entry;
  if (item.is_scalar()) {
    entry.path = item;
    return entry;
  }
  if (item.kind != Node::Kind::kMap) return std::nullopt;
  for (size_t i = 0; i < item.items.size(); ++i) {
    const Node& value = item.items[i];
    const std::string& name = item.names[i];
    if (has_loss && (name == "loss_type" ? value.is_scalar() : name == "loss_kwargs")) {
      entry.loss.names.push_back(name);
      entry.loss.items.push_back(value);
    } else if (name == "path" && value.is_scalar()) {
      entry.path = value;
    } else if (!has_loss && name == "weight" && value.is_scalar()) {
      entry.weight = value;
    } else {
      problem = name == "path" ? "its path is not one text" : "'" + name + "' is not known";
      return std::nullopt;
    }
  }
  if (entry.path.is_scalar()) return entry;
  problem = "it has no path";
  return std::nullopt;
}

enum class Form { kPaths, kWeighted, kSets };

Form form_of(const Setting& setting) {
  const Node& value = setting.value;
  if (setting.key != "train_file") return Form::kPaths;
  if (value.kind == Node::Kind::kMap) {
    const bool is_one = std::ranges::find(value.names, "path") != value.names.end();
    return is_one ? Form::kWeighted : Form::kSets;
  }
  const auto is_map = [](const Node& item) { return item.kind == Node::Kind::kMap; };
  return value.kind == Node::Kind::kList && std::ranges::any_of(value.items, is_map)
             ? Form::kWeighted
             : Form::kPaths;
}

}  // namespace

std::vector<Setting> split_train_file(const std::vector<Setting>& settings, Problems& problems) {
  std::vector<Setting> all;
  for (const Setting& setting : settings) {
    const Form form = form_of(setting);
    if (form == Form::kPaths) {
      all.push_back(setting);
      continue;
    }
    const bool has_sets = form == Form::kSets;
    const bool is_one = !has_sets && setting.value.kind == Node::Kind::kMap;
    const std::vector<Node> items = is_one ? std::vector<Node>{setting.value} : setting.value.items;
    Node paths = {.kind = Node::Kind::kList};
    Node weights = {.kind = Node::Kind::kList};
    Node sets = {.kind = Node::Kind::kMap};
    if (has_sets) sets.names = setting.value.names;
    bool well_formed = !items.empty();
    std::string problem;
    for (size_t i = 0; i < items.size(); ++i) {
      const std::optional<Entry> entry = entry_of(items[i], has_sets, problem);
      well_formed &= entry.has_value();
      if (!well_formed) {
        const std::string name =
            has_sets ? "'" + sets.names[i] + "'" : "entry " + std::to_string(i + 1);
        problem = problem.empty() ? "" : name + ": " + problem + "; ";
        break;
      }
      paths.items.push_back(entry->path);
      weights.items.push_back(entry->weight);
      sets.items.push_back(entry->loss);
    }
    if (!well_formed) {
      problems.add(setting.where, problem + kForm);
      continue;
    }
    for (Node& weight : weights.items) weight.kind = Node::Kind::kQuoted;
    all.push_back({setting.key, setting.where, std::move(paths)});
    if (has_sets) {
      all.push_back({"train_file_sets", setting.where, std::move(sets)});
    } else {
      all.push_back({"train_file_weights", setting.where, std::move(weights)});
    }
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

std::optional<std::string> problem_of_sets(const TrainingArgs& args) {
  if (args.train_file_sets.empty()) return std::nullopt;
  const size_t count = training_sets(args).size();
  if (count != args.train_file.size()) {
    return format_text("train_file has {} {} and train_file_sets {}; name each entry once",
                       args.train_file.size(), args.train_file.size() == 1 ? "entry" : "entries",
                       count);
  }
  const std::string with = "train_file as a mapping and ";
  const std::string exclude = " exclude each other: ";
  if (!args.train_file_weights.empty()) {
    return with + "weights" + exclude + "each update is of one entry, not of a mixture";
  }
  if (args.streaming) {
    return with + "'streaming: true'" + exclude + "updates are made of samples from all of a file";
  }
  if (args.max_train_samples) {
    return with + "max_train_samples" + exclude + "shorten the files";
  }
  if (args.dataloader_drop_last) {
    return with + "dataloader_drop_last" + exclude + "each update is full";
  }
  return std::nullopt;
}

}  // namespace finetune
