// SPDX-License-Identifier: MIT
#include "finetune/task/queries.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/read_line.h"
#include "finetune/data/rows.h"
#include "finetune/task/tasks.h"
#include "task/predict/query_columns.h"

namespace finetune {
namespace {

bool needs_columns(RowTask rows, const ColumnNames& columns) {
  return rows == RowTask::kDecision || rows == RowTask::kQuestionAnswering ||
         rows == RowTask::kMultipleChoice || columns.text_column || columns.text_pair_column;
}

// Opens the input. A pipe may stay open for hours without a byte. std::ifstream restarts an
// interrupted read, but standard input does not, so a signal takes effect there.
std::istream& open_lines(const std::string& path, std::ifstream& file) {
  std::error_code problem;
  const auto type = std::filesystem::status(path, problem).type();
  if (path != "-" && type == std::filesystem::file_type::directory) {
    throw Error(ErrorKind::kData, "--input: '" + path + "' is a folder; name a file");
  }
  const bool is_file = type == std::filesystem::file_type::regular;
  bool is_open = path == "-";
  if (path == "-" || !is_file) interrupt::break_reads();
  if (path != "-" && is_file) {
    file.open(path);
    is_open = file.good();
  } else if (path != "-") {
    is_open = std::freopen(path.c_str(), "r", stdin) != nullptr;
    interrupt::throw_if_requested("opening '" + path + "'");
  }
  if (!is_open) {
    const std::string why = std::strerror(errno);
    throw Error(ErrorKind::kData,
                "--input: cannot open '" + path + "': " + why + "; check the path");
  }
  if (path == "-" || !is_file) return std::cin;
  return file;
}

// Visits lines as soon as they arrive, so that answers appear at once.
void visit_lines(
    const std::string& path,
    const std::function<void(const std::string& line, const std::string& where)>& visit) {
  std::ifstream file;
  std::istream& lines = open_lines(path, file);
  int64_t number = 0;
  const std::string before = path == "-" ? "line " : path + ":";
  for (std::string line; read_line(lines, line, before + std::to_string(number + 1));) {
    if (line.ends_with('\r')) line.pop_back();
    visit(line, before + std::to_string(++number));
  }
  interrupt::throw_if_requested("predicting");
  if (lines.bad()) throw Error(ErrorKind::kIo, "'" + path + "' could not be read to its end");
}

}  // namespace

void visit_queries(const TaskDescriptor& task, const std::string& path, const QueryOptions& options,
                   const std::function<void(Query)>& visit) {
  const ColumnNames& columns = options.columns;
  QueryReader reader(task.rows, options);
  const bool is_input = path == "-";
  const bool is_text = !is_input && is_plain_text(path, options.reading);
  if (is_input && needs_columns(task.rows, columns)) {
    visit_lines(path, [&](const std::string& line, const std::string& where) {
      if (line.empty()) return;
      const nlohmann::ordered_json row = parse_json(line, where);
      if (!row.is_object()) throw Error(ErrorKind::kData, where + ": is no JSON object");
      reader.read({.columns = row, .position = where, .typed = true}, visit);
    });
  } else if (is_text && needs_columns(task.rows, columns)) {
    throw Error(ErrorKind::kData, "--input: '" + path + "' holds lines of text, but " +
                                      std::string(task.pipeline.name) +
                                      " needs columns here; give .jsonl, .json, .csv or .tsv");
  } else if (is_input || is_text) {
    visit_lines(path, [&](const std::string& line, const std::string& where) {
      visit({.where = where, .text = line});
    });
  } else {
    RowOptions rows;
    rows.key = "--input";
    rows.reading = options.reading;
    visit_rows({path}, rows, [&](const DataRow& row) {
      reader.read(row, visit);
      return true;
    });
  }
}

}  // namespace finetune
