// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/data/columns.h"
#include "finetune/data/rows.h"
#include "finetune/runs/run_facts.h"

namespace finetune {

// What a run predicted of its test file, for the report.

// Compares a classifier's predictions of a test file with its labels, by `report.label_names`: adds
// label_scores, or labels, counts and mistakes, and predictions_source. Adds nothing where
// predictions, labels or the test file are missing.
void add_predictions(const RunFolder& run, RunReport& report);

// The samples that were predicted worst, by the run's worst_samples.json, all texts shortened and
// printable. Where the texts cannot be read any more, `source` says why. Nothing where the run has
// no such file, or a damaged one.
[[nodiscard]] std::optional<RunReport::Worst> worst_of(const RunFolder& run,
                                                       const nlohmann::ordered_json& label_names);

// How sure the model was of its answers to the validation data, and how often right: the kinds of
// eval_calibration.json. Null where the run has no such file, or a damaged one.
[[nodiscard]] FileValue calibration_of(const RunFolder& run);

// The rows that the run predicted: files, columns and how they are read.
struct TestRows {
  std::vector<std::string> files;
  ColumnNames columns;
  RowOptions options;
};
// Nothing where the run names no test file. Throws Error(kData).
[[nodiscard]] std::optional<TestRows> test_rows_of(const RunFolder& run);

// The fields of the config.json of a folder's model, of an adapter's those that it was trained
// with; empty where there is no model. Throws Error.
[[nodiscard]] nlohmann::ordered_json model_fields_of(const std::string& folder);

// A value of a row or of a prediction as text for people.
[[nodiscard]] std::string plain_text_of(const nlohmann::ordered_json& value);
// A row's label as predictions name it: files may hold a class's number.
[[nodiscard]] std::string name_of_label(const nlohmann::ordered_json& value,
                                        const nlohmann::ordered_json& names);
// For the report: printable, and not longer than is read.
[[nodiscard]] std::string shown_text(const std::string& text);

}  // namespace finetune
