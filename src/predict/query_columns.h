// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/data/rows.h"
#include "finetune/predict/queries.h"

namespace finetune {

// The columns of a task's rows: named, or guessed from the first row by the rules of training (see
// data/classification_dataset.h and its kin).
class QueryReader {
 public:
  QueryReader(PredictTask task, const QueryColumns& columns) : task_(task), named_(columns) {}

  // Calls `visit` with the row's queries. Throws Error(kData) with place and column.
  void read(const DataRow& row, const std::function<void(Query)>& visit);

 private:
  void guess(const DataRow& row);
  void guess_text(const DataRow& row);
  void guess_question(const DataRow& row);
  void guess_choices(const DataRow& row);
  void say_guess(const DataRow& row) const;
  [[nodiscard]] Query text_query(const DataRow& row) const;
  [[nodiscard]] Query choice_query(const DataRow& row) const;

  PredictTask task_;
  QueryColumns named_;
  bool guessed_ = false;
  std::string first_;                  // the text's column, or the context's
  std::optional<std::string> second_;  // see Query::pair
  std::vector<std::string> choices_;
};

}  // namespace finetune
