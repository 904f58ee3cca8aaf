// SPDX-License-Identifier: MIT
#include "model/architecture.h"

#include <map>

#include "finetune/base/error.h"

namespace finetune {

const Architecture& architecture_of(const ModelConfig& config) {
  static const std::map<std::string, const Architecture& (*)()> kArchitectures = {
      {"bert", bert_architecture},
      {"big_bird", big_bird_architecture},
      {"roberta", roberta_architecture},
      {"xlm-roberta", xlm_roberta_architecture}};
  const auto found = kArchitectures.find(config.model_type);
  if (found == kArchitectures.end()) {
    throw Error(ErrorKind::kConfig,
                "model_type '" + config.model_type + "' is not available in this version");
  }
  return found->second();
}

}  // namespace finetune
