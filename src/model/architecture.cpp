// SPDX-License-Identifier: MIT
#include "model/architecture.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"

namespace finetune {

// Each family's source defines its function.
#define FINETUNE_MODEL_FAMILY(NAME, ...) const Architecture& NAME##_architecture();
#include "finetune/base/model_families.def"
#undef FINETUNE_MODEL_FAMILY

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> kAll = [] {
#define FINETUNE_MODEL_FAMILY(NAME, ...) &NAME##_architecture(),
    std::vector<const Architecture*> all = {
#include "finetune/base/model_families.def"
    };
#undef FINETUNE_MODEL_FAMILY
    std::ranges::sort(all, {}, [](const Architecture* a) { return a->model_type(); });
    return all;
  }();
  return kAll;
}

Architecture::TiedNames Architecture::tied_names(const ModelConfig& config) const {
  const std::string head = lm_head_name();
  TiedNames names = {{head + ".bias", head + ".decoder.bias"}};
  if (config.tie_word_embeddings) {
    names.emplace_back(backbone_name() + ".embeddings.word_embeddings.weight",
                       head + ".decoder.weight");
  }
  return names;
}

void check_known(const std::string& field, const std::string& value,
                 const std::vector<std::string>& known, const Architecture::Refuse& refuse) {
  if (std::ranges::find(known, value) != known.end()) return;
  constexpr size_t kShort = 8;
  refuse(format_text("{} '{}' is not known{}{}", field, value, did_you_mean(value, known),
                     known.size() <= kShort ? "; known are " + join(known) : ""));
}

void check_equal(const char* field, const std::optional<int64_t>& value, const char* other,
                 int64_t expected, const Architecture::Refuse& refuse) {
  if (value.value_or(expected) == expected) return;
  refuse(format_text("{} {} differs from {} {}, which is not available", field, *value, other,
                     expected));
}

void refuse_next_sentence_head(const ModelConfig& config) {
  throw Error(ErrorKind::kConfig,
              "model_type '" + config.model_type + "' has no head for the next sentence");
}

void refuse_head(const ModelConfig& config) {
  throw Error(ErrorKind::kConfig, "model_type '" + config.model_type +
                                      "' has no head for this task, as in transformers; use "
                                      "another task, or another model");
}

nn::Value Backbone::pool(const nn::Value& /*hidden*/, nn::Pass& /*p*/) const {
  FT_CHECK(false, "a backbone without a pooler");
}

const Architecture& architecture_of(const ModelConfig& config) {
  for (const Architecture* architecture : architectures()) {
    if (architecture->model_type() == config.model_type) return *architecture;
  }
  throw Error(ErrorKind::kConfig,
              "model_type '" + config.model_type + "' is not available in this version");
}

}  // namespace finetune
