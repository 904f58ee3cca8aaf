// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/columns.h"
#include "finetune/data/data_record.h"

namespace finetune {

struct TaskDescriptor;

// One input for prediction.
struct Query {
  std::string where;  // prefix of messages: "text 2", "in.jsonl:17"
  std::string text;   // for question answering and multiple choice the context
  // The second text of a classification, the question, or the text before each choice.
  std::optional<std::string> pair = std::nullopt;
  std::vector<std::string> parts = {};  // the choices; or words to tag, instead of `text`
  // A conversation as a row of chat data, or a request of decisions (JSON), instead of `text`;
  // empty: neither.
  std::string conversation = {};
};

// Options of reading queries from a file.
struct QueryOptions {
  ColumnNames columns = {};  // named by the user
  ColumnNames trained = {};  // columns of the training; see trained_data()
  ReadingOptions reading = {};
};

// Returns the columns that the model in `folder` was trained with and how its files were read;
// empty if the folder does not record it, or the model is of another task. Throws Error(kData) for
// a damaged record.
[[nodiscard]] DataRecord trained_data(const TaskDescriptor& task, const std::string& folder);

// Calls `visit` with a query for each row (of SQuAD's articles: for each question) of a file, in
// order. `path` may be "-" for standard input: lines of text, or JSON if a column is named or the
// task needs more than a text. Throws Error(kData) with file, line and column for unusable input,
// Error(kIo), and Interrupted.
void visit_queries(const TaskDescriptor& task, const std::string& path, const QueryOptions& options,
                   const std::function<void(Query)>& visit);

}  // namespace finetune
