// SPDX-License-Identifier: MIT
#include "model/architecture.h"

#include "finetune/base/error.h"

namespace finetune {

// Each family's own source defines its function.
const Architecture& bert_architecture();
const Architecture& big_bird_architecture();
const Architecture& roberta_architecture();
const Architecture& xlm_roberta_architecture();

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> kAll = {
      &bert_architecture(), &big_bird_architecture(), &roberta_architecture(),
      &xlm_roberta_architecture()};
  return kAll;
}

const Architecture& architecture_of(const ModelConfig& config) {
  for (const Architecture* architecture : architectures()) {
    if (architecture->model_type() == config.model_type) return *architecture;
  }
  throw Error(ErrorKind::kConfig,
              "model_type '" + config.model_type + "' is not available in this version");
}

}  // namespace finetune
