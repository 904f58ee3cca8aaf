// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/columns.h"
#include "finetune/data/rows.h"
#include "finetune/runs/run_folder.h"

namespace finetune {

// What a run predicted of its test file, for the report.

// Of a classifier with one label for each text that has predicted a test file with labels:
// {"labels", "counts" (a row for each true label), "worst" (the first mistakes with their text),
// "source"}. With several labels for each text: {"scores" ([{"label", "precision", "recall", "f1",
// "samples"}]), "source"}. Null where predictions, labels or the test file are missing.
[[nodiscard]] nlohmann::ordered_json predictions_of(const RunFolder& run,
                                                    const nlohmann::ordered_json& label_names);

// The samples that were predicted worst, by the run's worst_samples.json: {"measure", "title",
// "source", "samples", "worst": [{"sample", "score", "text", "label", "predicted"}]}, all texts
// shortened and printable. Where the texts cannot be read any more, "source" says why. Null where
// the run has no such file, or a damaged one.
[[nodiscard]] nlohmann::ordered_json worst_of(const RunFolder& run,
                                              const nlohmann::ordered_json& label_names);

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
