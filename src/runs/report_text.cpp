// SPDX-License-Identifier: MIT
// The report as Markdown and CSV.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/runs/run_facts.h"
#include "finetune/runs/run_text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string cell_text(const Json& value) {
  std::string text = value.is_null()           ? "–"
                     : value.is_string()       ? value.get<std::string>()
                     : value.is_number_float() ? figure_text(value.get<double>())
                                               : value.dump();
  std::string escaped;
  for (const char c : printable(text)) {
    if (c == '<') {  // no markup out of the data
      escaped += "&lt;";
      continue;
    }
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += " " + cell + " |";
  return text + "\n";
}

std::string heading_row(const std::vector<std::string>& names) {
  return row(names) + row(std::vector<std::string>(names.size(), "---"));
}

std::string time_cell(const Json& value) {
  return value.is_number() ? local_time_text(value.get<double>()) : "–";
}

// A killed session logged more than was saved: "0 to 10, resumed from 7".
std::string steps_text(const Json& session) {
  const Json from = member(session, "resumed_from");
  return cell_text(member(session, "first_step")) + " to " +
         cell_text(member(session, "last_step")) +
         (from.is_null() ? "" : ", resumed from " + cell_text(from));
}

std::string sessions_text(const Json& run) {
  if (run["sessions"].empty()) return "";
  std::string text =
      "\n### Sessions\n\n" + heading_row({"session", "began", "lasted", "steps", "ended", "where"});
  for (const Json& session : run["sessions"]) {
    const auto start = number_in(session, "start");
    const auto end = number_in(session, "end");
    std::string ended = cell_text(member(session, "ending"));
    const Json reason = member(session, "reason");
    if (reason.is_string() && reason != member(session, "ending")) {
      ended += ": " + cell_text(reason);
    }
    text += row({cell_text(member(session, "session")), time_cell(member(session, "start")),
                 start && end ? duration_text(*end - *start) : "–", steps_text(session), ended,
                 cell_text(member(session, "host")) + ", " + cell_text(member(session, "device"))});
  }
  return text;
}

std::string changes_text(const Json& run) {
  if (run["changes"].empty()) return "";
  std::string text = "\n### Changed between sessions\n\n" +
                     heading_row({"session", "from step", "key", "before", "after"});
  for (const Json& change : run["changes"]) {
    text += row({cell_text(change["session"]), cell_text(change["step"]), cell_text(change["key"]),
                 cell_text(change["before"]), cell_text(change["after"])});
  }
  return text;
}

std::string checkpoints_text(const Json& run) {
  const Json& list = run["status"]["checkpoints"];
  if (list.empty()) return "";
  std::string text = "\n### Checkpoints\n\n" + heading_row({"step", "bytes", "written", "state"});
  for (const Json& entry : list) {
    text += row({cell_text(entry["step"]), cell_text(entry["bytes"]),
                 time_cell(member(entry, "created")),
                 entry["valid"] == true ? "valid" : "invalid: " + cell_text(entry["problem"])});
  }
  return text;
}

// The splits with their samples and tokens, and the labels of the training samples.
std::string data_text(const Json& run) {
  const Json data = member(run, "data");
  if (!data.is_object() || data.empty()) return "";
  std::string text = "\n### Data\n\n" + heading_row({"split", "samples", "tokens",
                                                     "mean of a sample", "median", "longest"});
  for (const auto& [split, found] : data.items()) {
    const auto samples = number_in(found, "samples");
    const auto mean = number_in(found, "mean_length");
    std::string tokens = "–";
    if (mean && samples) {
      const bool is_estimated = number_in(found, "looked_at").value_or(*samples) < *samples;
      tokens = (is_estimated ? "≈ " : "") + std::to_string(std::llround(*mean * *samples));
    }
    text += row({cell_text(Json(split)), cell_text(member(found, "samples")), tokens,
                 mean ? format_number("%.1f", *mean) : "–",
                 cell_text(member(found, "median_length")), cell_text(member(found, "longest"))});
  }
  const Json train = member(data, "train");
  const Json labels = member(train, "labels");
  if (!labels.is_object() || labels.empty()) return text;
  text += "\n" + heading_row({"label", "samples looked at"});
  for (const auto& [id, count] : labels.items()) {
    const Json name = member(member(run, "label_names"), id);
    text += row({cell_text(name.is_string() ? name : Json(id)), cell_text(count)});
  }
  return text;
}

std::string confusion_text(const Json& run) {
  const Json confusion = member(run, "confusion");
  if (confusion.is_null()) return "";
  std::vector<std::string> names = {"true \\ predicted"};
  for (const Json& label : confusion["labels"]) names.push_back(cell_text(label));
  std::string text =
      "\n### Predictions\n\n" + cell_text(confusion["source"]) + "\n\n" + heading_row(names);
  for (size_t i = 0; i < confusion["labels"].size(); ++i) {
    std::vector<std::string> cells = {names[i + 1]};
    for (const Json& count : confusion["counts"][i]) cells.push_back(cell_text(count));
    text += row(cells);
  }
  return text;
}

std::string class_scores_text(const Json& run) {
  const Json scores = member(run, "class_scores");
  if (scores.is_null()) return "";
  std::string text = "\n### Predictions\n\n" + cell_text(scores["source"]) + "\n\n" +
                     heading_row({"label", "precision", "recall", "F1", "samples"});
  for (const Json& label : scores["scores"]) {
    text += row({cell_text(label["label"]), cell_text(label["precision"]),
                 cell_text(label["recall"]), cell_text(label["f1"]), cell_text(label["samples"])});
  }
  return text;
}

std::string worst_text(const Json& run) {
  const Json worst = member(run, "worst");
  if (worst.is_null()) return "";
  std::string text = "\n### Worst predictions: " + cell_text(worst["title"]) + "\n\n" +
                     cell_text(worst["source"]) + "\n\n" +
                     heading_row({"row", cell_text(worst["measure"]), "text", "true", "predicted"});
  for (const Json& one : worst["worst"]) {
    const int64_t number = one["sample"].get<int64_t>() + 1;
    text += row({std::to_string(number), cell_text(one["score"]), cell_text(one["text"]),
                 cell_text(one["label"]), cell_text(one["predicted"])});
  }
  return text;
}

std::string run_text(const Json& run) {
  std::string text =
      "\n## " + cell_text(run["name"]) + "\n\n```\n" + status_text(run["status"]) + "```\n";
  for (const Json& note : run["notes"]) text += "\n- " + cell_text(note);
  if (!run["notes"].empty()) text += "\n";
  if (!run["results"].empty()) {
    text += "\n### Results\n\n" + heading_row({"metric", "value"});
    for (const auto& [key, value] : run["results"].items())
      text += row({cell_text(Json(key)), cell_text(value)});
  }
  text += sessions_text(run) + changes_text(run) + checkpoints_text(run) + data_text(run) +
          confusion_text(run) + class_scores_text(run) + worst_text(run);
  if (!run["set_keys"].empty()) {
    text += "\n### Configuration\n\n" + heading_row({"key", "value"});
    for (const Json& key : run["set_keys"]) {
      text += row({"`" + cell_text(key) + "`", cell_text(run["config"][key.get<std::string>()])});
    }
  }
  return text;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_value(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_number_float()) return format_double(value.get<double>());
  return csv_cell(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

std::string markdown_report(const Json& report) {
  const Json& runs = report["runs"];
  std::string text = "# finetune report\n";
  if (runs.size() > 1) {
    std::vector<std::string> names = {""};
    std::vector<std::string> metrics;
    for (const Json& run : runs) {
      names.push_back(cell_text(run["name"]));
      for (const auto& item : run["results"].items()) {
        if (std::ranges::find(metrics, item.key()) == metrics.end()) metrics.push_back(item.key());
      }
    }
    text += "\n## Comparison\n\n" + heading_row(names);
    for (const std::string& metric : metrics) {
      std::vector<std::string> cells = {cell_text(Json(metric))};
      for (const Json& run : runs) cells.push_back(cell_text(member(run["results"], metric)));
      text += row(cells);
    }
    for (const Json& difference : report["differences"]) {
      std::vector<std::string> cells = {"`" + cell_text(difference["key"]) + "`"};
      for (const Json& value : difference["values"]) cells.push_back(cell_text(value));
      text += row(cells);
    }
  }
  for (const Json& run : runs) text += run_text(run);
  return text;
}

std::string csv_report(const std::vector<RunFolder>& runs) {
  std::vector<std::string> keys = {"step", "epoch", "time", "session"};
  std::set<std::string> known(keys.begin(), keys.end());
  for (const RunFolder& run : runs) {
    for_each_logged_line(run, [&](const Json& line) {
      for (const auto& item : line.items()) {
        if (known.insert(item.key()).second) keys.push_back(item.key());
      }
    });
  }
  std::string text = "run";
  for (const std::string& key : keys) text += "," + csv_cell(key);
  text += "\n";
  for (const RunFolder& run : runs) {
    for_each_logged_line(run, [&](const Json& line) {
      text += csv_cell(file_name(run.path));
      for (const std::string& key : keys) text += "," + csv_value(member(line, key));
      text += "\n";
    });
  }
  return text;
}

}  // namespace finetune
