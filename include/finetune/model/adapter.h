// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

// The modules of a head that an adapter trains whole: PEFT's, by its task type. A model need not
// have each of them. Of a masked or causal language model none.
[[nodiscard]] std::vector<std::string> output_modules(const ModelConfig& config,
                                                      std::optional<Head> head);

// Returns the parameters of the frozen base that the model folder `base` lacks: the adapter's
// folder would not hold them either. Requires: the configuration has an adapter.
[[nodiscard]] std::vector<std::string> missing_in_base(const ModelConfig& config,
                                                       std::optional<Head> head,
                                                       const std::string& base);

// Returns the class of transformers ("BertForTokenClassification", or its end) that an adapter's
// folder names; empty: it is no adapter, or names none.
[[nodiscard]] std::string adapter_architecture(const std::string& folder);

// A module's name in a model of images and text, "model.language_model.norm", as the language model
// has it: "model.norm". Others are returned as they are.
[[nodiscard]] std::string name_in_language_model(const std::string& module);

}  // namespace finetune
