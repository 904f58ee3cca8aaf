// SPDX-License-Identifier: MIT
#include "finetune/config/training_sets.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {

std::vector<TrainingSet> training_sets(const DataArgs& args) {
  std::vector<TrainingSet> sets;
  if (args.train_file_sets.empty()) return sets;
  const nlohmann::ordered_json written = parse_json(args.train_file_sets.text, "train_file_sets");
  for (const auto& [name, loss] : written.items()) {
    TrainingSet& set = sets.emplace_back(TrainingSet{.name = name});
    if (!loss.is_object()) {
      throw Error(ErrorKind::kConfig, "'" + name + "' must be {loss_type: ..., loss_kwargs: ...}");
    }
    for (const auto& [key, value] : loss.items()) {
      if (key == "loss_type" && value.is_string()) {
        set.loss_type = value.get<std::string>();
      } else if (key == "loss_kwargs" && value.is_object()) {
        set.loss_kwargs.text = value.dump();
      } else {
        throw Error(ErrorKind::kConfig, "'" + key + "' of '" + name +
                                            "': an entry has a path, loss_type (a name) and "
                                            "loss_kwargs (a mapping)");
      }
    }
  }
  return sets;
}

}  // namespace finetune
