// SPDX-License-Identifier: MIT
#include "task/embedding/embedding.h"

namespace finetune {

const TaskDescriptor& embedding_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = embedding_keys(),
      .rows = RowTask::kEmbedding,
      .head = [](const TaskArgs&) { return std::optional(Head::kEmbedding); },
      .make_setup = make_embedding_setup,
      .pipeline = {.name = "feature-extraction",
                   .aliases = {"sentence-similarity"},
                   .class_suffix = "Model",
                   .has_peft_class = false,
                   .library =
                       [](const TaskArgs&) {
                         return PythonLibrary{
                             .name = "sentence-transformers",
                             .import_line = "from sentence_transformers import SentenceTransformer",
                             .callable = "SentenceTransformer"};
                       },
                   .make_predictor = make_embedder}};
  return descriptor;
}

}  // namespace finetune
