// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "finetune/data/columns.h"
#include "finetune/task/queries.h"

namespace finetune {

// Converts rows to queries. The columns are found in the first row (see data/columns.h) and logged.
class QueryReader {
 public:
  QueryReader(RowTask rows, QueryOptions options) : rows_(rows), options_(std::move(options)) {}

  // Calls `visit` with the row's queries. Throws Error(kData) with position and column.
  void read(const DataRow& row, const std::function<void(Query)>& visit);

 private:
  void find_columns(const DataRow& row);
  [[nodiscard]] Query text_query(const DataRow& row) const;
  [[nodiscard]] Query choice_query(const DataRow& row) const;
  [[nodiscard]] Query question_query(const DataRow& row) const;

  RowTask rows_;
  QueryOptions options_;
  std::optional<ColumnNames> columns_;
};

}  // namespace finetune
