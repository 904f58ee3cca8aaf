// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/report/html_report.h"
#include "finetune/report/session_log.h"
#include "finetune/runs/run_facts.h"

namespace finetune::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRuns = 20;
// Points of one curve over all runs: keeps the page below 1 MB.
constexpr size_t kPointsOfAll = 8000;
constexpr size_t kMostPoints = 1200;  // points of one curve of one run

constexpr const char* kReportHelp =
    R"(usage: finetune report OUTPUT_DIR... [-o FILE] [--format html|md|json|csv] [--verify]

Writes a report about one run, or compares several: curves, sessions and interruptions,
checkpoints, configuration and its changes, cost, data. Only reads the runs, which may
be running; runs of transformers' Trainer too. The HTML file needs no network.

  -o FILE     where to write; default: report.html in the current folder for html,
              standard output for the other formats ("-": standard output)
  --format F  html, md, json (what the page draws), csv (all logged values);
              default: by the ending of FILE, else html
  --verify    read every byte of the checkpoints, not only their sizes
)";

std::string title_of(const std::vector<std::string>& folders) {
  std::string title;
  for (const std::string& folder : folders) {
    title += (title.empty() ? "" : ", ") + file_name(folder);
  }
  return title;
}

std::vector<RunFolder> read_runs(const std::vector<std::string>& folders, bool verify) {
  std::vector<RunFolder> runs;
  for (const std::string& folder : folders) {
    runs.push_back(read_run_folder(folder, verify));
  }
  return runs;
}

// Names runs with equal folder names by their paths ("a/out" and "b/out").
void name_apart(std::vector<RunReport>& runs) {
  std::map<std::string, int> uses;
  for (const RunReport& run : runs) ++uses[run.name];
  for (RunReport& run : runs) {
    if (uses[run.name] > 1) run.name = run.path;
  }
}

Report report_on(const std::vector<RunFolder>& folders, bool verify) {
  const size_t points = std::clamp(kPointsOfAll / folders.size(), size_t{100}, kMostPoints);
  Report report{.runs = {}, .differences = {}, .is_verified = verify};
  for (const RunFolder& run : folders) report.runs.push_back(report_of(run, points));
  name_apart(report.runs);
  report.differences = differing_keys(report.runs);
  return report;
}

// Files in a run's folder belong to the run, except those with a report's name.
void refuse_to_replace_a_run(const std::string& file, const std::vector<std::string>& folders) {
  const std::string name = file_name(file);
  if (name.starts_with("report") || name.ends_with(".html")) return;
  const std::filesystem::path path(file);
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (const std::string& run : folders) {
    if (!std::filesystem::equivalent(folder, run, missing) || missing) continue;
    throw Error(ErrorKind::kUsage, "-o '" + file + "' is a file of the run in '" + run +
                                       "', which a report only reads; choose another name");
  }
}

// Returns the format that a file's ending names; empty if it names none.
std::string format_of_ending(const std::string& file) {
  const std::string ending = lower_case(std::filesystem::path(file).extension().string());
  if (ending == ".html" || ending == ".htm") return "html";
  if (ending == ".md" || ending == ".markdown") return "md";
  if (ending == ".json") return "json";
  return ending == ".csv" ? "csv" : "";
}

std::string chosen_format(const std::optional<std::string>& format,
                          const std::optional<std::string>& file) {
  const std::string formats[] = {"html", "md", "json", "csv"};
  if (format && std::ranges::find(formats, *format) == std::end(formats)) {
    throw Error(ErrorKind::kUsage, "--format must be html, md, json or csv, not '" + *format + "'");
  }
  if (!file || *file == "-") return format.value_or("html");
  const std::string by_ending = format_of_ending(*file);
  if (format && !by_ending.empty() && by_ending != *format) {
    throw Error(ErrorKind::kUsage, "-o '" + *file + "' is named like " + by_ending +
                                       " and --format is " + *format +
                                       "; leave --format out, or choose another name");
  }
  if (format) return *format;
  if (!by_ending.empty()) return by_ending;
  throw Error(ErrorKind::kUsage, "-o '" + *file +
                                     "' does not end in .html, .md, .json or .csv; choose such a "
                                     "name, or add --format html, md, json or csv");
}

// Reading the runs may take long: a file that cannot be written is refused before.
void check_output(const std::string& file) {
  const std::filesystem::path path(file);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw Error(ErrorKind::kUsage, "-o '" + file + "' is a folder; name a file in it");
  }
  if (!std::filesystem::is_directory(folder, unknown)) {
    throw Error(ErrorKind::kUsage, "-o '" + file + "': there is no folder '" + folder.string() +
                                       "'; make it, or choose another file");
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    throw Error(ErrorKind::kUsage, "-o '" + file + "': the folder '" + folder.string() +
                                       "' is not writable; choose another file");
  }
}

}  // namespace

int report_command(const Arguments& arguments) {
  CommandLine line("report", kReportHelp);
  std::optional<std::string> asked_format;
  std::optional<std::string> file;
  bool verify = false;
  line.value("--format", asked_format);
  line.value("-o", file);
  line.flag("--verify", verify);
  if (!line.parse(arguments)) return kExitFinished;
  std::vector<std::string> folders = line.rest();
  for (std::string& folder : folders) {
    if (folder.starts_with("-")) {
      throw Error(ErrorKind::kUsage,
                  "finetune report has no option '" + folder + "'; see 'finetune report --help'");
    }
    while (folder.size() > 1 && folder.ends_with("/")) folder.pop_back();
  }
  if (folders.empty() || folders.size() > kMostRuns) {
    throw Error(ErrorKind::kUsage,
                format_text("finetune report takes 1 to {} folders, each the output_dir of a run",
                            kMostRuns));
  }
  if (file && *file != "-") refuse_to_replace_a_run(*file, folders);
  const std::string format = chosen_format(asked_format, file);
  if (!file && format == "html") file = "report.html";
  const bool prints = !file || *file == "-";
  if (!prints) check_output(*file);
  const std::vector<RunFolder> runs = read_runs(folders, verify);
  std::string text;
  if (format == "csv") {
    text = csv_report(runs);
  } else {
    const Report report = report_on(runs, verify);
    const Json json = to_json(report);
    if (format == "json") text = json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
    if (format == "md") text = markdown_report(report);
    if (format == "html") text = html_page(json, title_of(folders), markdown_report(report));
  }
  if (prints) {
    std::cout << text << std::flush;
    return kExitFinished;
  }
  FileSystem::local().write_atomically(*file, text);
  log::info("the report is in " + *file);
  return kExitFinished;
}

}  // namespace finetune::cli
