// SPDX-License-Identifier: MIT
// The report as Markdown and CSV.
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

std::string time_cell(std::optional<double> time) { return time ? local_time_text(*time) : "–"; }

// A killed session logged more than was saved: "0 to 10, resumed from 7".
std::string steps_text(const RunReport::Session& session) {
  return cell_text(session.first_step) + " to " + cell_text(session.last_step) +
         (session.resumed_from ? format_text(", resumed from {}", *session.resumed_from) : "");
}

std::string sessions_text(const RunReport& run) {
  if (run.sessions.empty()) return "";
  std::string text =
      "\n### Sessions\n\n" + heading_row({"session", "began", "lasted", "steps", "ended", "where"});
  for (const RunReport::Session& session : run.sessions) {
    const auto start = number_of(session.start);
    const auto end = number_of(session.end);
    std::string ended = session.ending;
    const Json reason = session.reason.value_or(Json());
    if (reason.is_string() && reason != ended) ended += ": " + cell_text(reason);
    text += row({cell_text(session.session), time_cell(start),
                 start && end ? duration_text(*end - *start) : "–", steps_text(session), ended,
                 cell_text(session.host) + ", " + cell_text(session.device)});
  }
  return text;
}

std::string changes_text(const RunReport& run) {
  if (run.changes.empty()) return "";
  std::string text = "\n### Changed between sessions\n\n" +
                     heading_row({"session", "from step", "key", "before", "after"});
  for (const RunReport::Change& change : run.changes) {
    text += row({cell_text(change.session), cell_text(change.step), cell_text(change.key),
                 cell_text(change.before), cell_text(change.after)});
  }
  return text;
}

std::string checkpoints_text(const std::vector<checkpoint::CheckpointEntry>& checkpoints) {
  if (checkpoints.empty()) return "";
  std::string text = "\n### Checkpoints\n\n" + heading_row({"step", "bytes", "written", "state"});
  for (const auto& entry : checkpoints) {
    const auto created = static_cast<double>(entry.created_unix);
    text += row({cell_text(entry.step), cell_text(entry.bytes),
                 time_cell(created > 0 ? std::optional(created) : std::nullopt),
                 entry.whole ? "valid" : "invalid: " + cell_text(entry.problem)});
  }
  return text;
}

// The splits with their samples and tokens, and the labels of the training samples.
std::string data_text(const RunReport& run) {
  const Json& data = run.data;
  if (data.empty()) return "";
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
    text += row({cell_text(split), cell_text(member(found, "samples")), tokens,
                 mean ? format_number("%.1f", *mean) : "–",
                 cell_text(member(found, "median_length")), cell_text(member(found, "longest"))});
  }
  const Json labels = member(member(data, "train"), "labels");
  if (!labels.is_object() || labels.empty()) return text;
  text += "\n" + heading_row({"label", "samples looked at"});
  for (const auto& [id, count] : labels.items()) {
    const Json name = member(run.label_names, id);
    text += row({cell_text(name.is_string() ? name : Json(id)), cell_text(count)});
  }
  return text;
}

std::string predictions_text(const RunReport& run) {
  if (!run.predictions_source) return "";
  std::string text = "\n### Predictions\n\n" + cell_text(*run.predictions_source) + "\n\n";
  if (run.labels.empty()) {
    text += heading_row({"label", "precision", "recall", "F1", "samples"});
    for (const RunReport::LabelScore& score : run.label_scores) {
      text += row({cell_text(score.label), cell_text(score.precision), cell_text(score.recall),
                   cell_text(score.f1), cell_text(score.samples)});
    }
    return text;
  }
  std::vector<std::string> names = {"true \\ predicted"};
  for (const std::string& label : run.labels) names.push_back(cell_text(label));
  text += heading_row(names);
  for (size_t i = 0; i < run.labels.size(); ++i) {
    std::vector<std::string> cells = {names[i + 1]};
    for (const int64_t count : run.counts[i]) cells.push_back(cell_text(count));
    text += row(cells);
  }
  return text;
}

std::string worst_text(const RunReport& run) {
  if (!run.worst) return "";
  const RunReport::Worst& worst = *run.worst;
  if (worst.samples_shown.empty()) return "";
  std::string text = "\n### Worst predictions: " + cell_text(worst.title) + "\n\n" +
                     cell_text(worst.source) + "\n\n" +
                     heading_row({"row", cell_text(worst.measure), "text", "true", "predicted"});
  for (const RunReport::WorstSample& one : worst.samples_shown) {
    text += row({std::to_string(one.sample + 1), cell_text(one.score), cell_text(one.text),
                 cell_text(one.label), cell_text(one.predicted)});
  }
  return text;
}

std::string run_text(const RunReport& run) {
  std::string text =
      "\n## " + cell_text(run.name) + "\n\n```\n" + status_text(run.status) + "```\n";
  for (const std::string& note : run.notes) text += "\n- " + cell_text(note);
  if (!run.notes.empty()) text += "\n";
  if (!run.results.empty()) {
    text += "\n### Results\n\n" + heading_row({"metric", "value"});
    for (const auto& [key, value] : run.results.items())
      text += row({cell_text(key), cell_text(value)});
  }
  text += sessions_text(run) + changes_text(run) + checkpoints_text(run.status.checkpoints) +
          data_text(run) + predictions_text(run) + worst_text(run);
  if (!run.set_keys.empty()) {
    text += "\n### Configuration\n\n" + heading_row({"key", "value"});
    for (const std::string& key : run.set_keys) {
      text += row({"`" + cell_text(key) + "`", cell_text(member(run.config, key))});
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

std::string markdown_report(const Report& report) {
  std::string text = "# finetune report\n";
  if (report.runs.size() > 1) {
    std::vector<std::string> names = {""};
    Json metrics = Json::object();
    for (const RunReport& run : report.runs) {
      names.push_back(cell_text(run.name));
      metrics.update(run.results);
    }
    text += "\n## Comparison\n\n" + heading_row(names);
    for (const auto& metric : metrics.items()) {
      std::vector<std::string> cells = {cell_text(metric.key())};
      for (const RunReport& run : report.runs) {
        cells.push_back(cell_text(member(run.results, metric.key())));
      }
      text += row(cells);
    }
    for (const auto& [key, values] : report.differences) {
      std::vector<std::string> cells = {"`" + cell_text(key) + "`"};
      for (const Json& value : values) cells.push_back(cell_text(value));
      text += row(cells);
    }
  }
  for (const RunReport& run : report.runs) text += run_text(run);
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
