// SPDX-License-Identifier: MIT
#include "task/pretraining/pretraining.h"

#include "task/predict/fill_mask.h"

namespace finetune {
namespace {

std::string next_sentence_text(int64_t label) {
  return label == 0 ? "the second text follows the first" : "the second text is a random one";
}

}  // namespace

const TaskDescriptor& pretraining_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = pretraining_keys(),
      .rows = RowTask::kText,
      .head =
          [](const TaskArgs& args) {
            return args.use_nsp ? std::optional(Head::kPretraining) : std::nullopt;
          },
      .make_setup = make_pretraining_setup,
      .pipeline = {.name = "fill-mask",
                   .class_suffix = "ForPreTraining",
                   .make_predictor = make_fill_mask},
      .learns_words = true,
      .class_text = next_sentence_text};
  return descriptor;
}

}  // namespace finetune
