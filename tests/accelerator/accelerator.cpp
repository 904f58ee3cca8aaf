// SPDX-License-Identifier: MIT
#include "accelerator/accelerator.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace finetune::testing {
namespace {

using TypesOfOperators = std::map<std::string, std::set<std::string>>;

const TypesOfOperators& listed_operators() {
  static const TypesOfOperators all = [] {
    TypesOfOperators listed;
    std::ifstream file(source_dir() + "/tests/accelerator/operators.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      listed[name] = {std::istream_iterator<std::string>(words), {}};
    }
    return listed;
  }();
  return all;
}

// What the list lacks: "aten::cumsum int64".
void find_missing(const TypesOfOperators& called, std::set<std::string>& missing) {
  for (const auto& [name, types] : called) {
    const auto listed = listed_operators().find(name);
    if (listed == listed_operators().end()) missing.insert(name);
    for (const std::string& type : types) {
      if (listed == listed_operators().end() || !listed->second.contains(type)) {
        missing.insert(name + " " + type);
      }
    }
  }
}

}  // namespace

AcceleratorReport read_reports(const std::string& folder) {
  AcceleratorReport report;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Json json = parse_json(read_file(entry.path()), entry.path(), ErrorKind::kData);
    report.devices.insert(json["device"].get<std::string>());
    report.tf32 = json["tf32"].get<bool>();
    report.deterministic = json["deterministic"].get<bool>();
    report.cublas_workspace = json["cublas_workspace"].get<std::string>();
    report.peak_bytes = std::max(report.peak_bytes, json["peak_bytes"].get<int64_t>());
    for (const auto& [reason, count] : json["waits"].items()) {
      report.waits_by_reason[reason] += count.get<int64_t>();
      report.waits += count.get<int64_t>();
    }
    for (const auto& [name, kernel] : json["kernels"].items()) {
      report.calls[name] += kernel["calls"].get<int64_t>();
      if (name.starts_with("aten::"))
        report.types[name].merge(kernel["types"].get<std::set<std::string>>());
      report.kernels += kernel["calls"].get<int64_t>();
      report.bytes += kernel["read"].get<int64_t>() + kernel["written"].get<int64_t>();
    }
  }
  return report;
}

Accelerator::~Accelerator() {
  std::set<std::string> missing;
  for (int i = 0; i < reports_; ++i) {
    find_missing(read_reports(folder_ / std::to_string(i)).types, missing);
  }
  for (const std::string& name : missing) {
    ADD_FAILURE() << "tests/accelerator/operators.txt does not list " << name;
  }
}

ProcessOptions Accelerator::options(const Environment& more) {
  latest_ = folder_ / std::to_string(reports_++);
  std::filesystem::create_directories(latest_);
  ProcessOptions options;
  options.environment = {{"PRETEND_ACCELERATOR_REPORT", latest_}};
  options.preload = pretend_accelerator_path();
  for (const auto& [name, value] : more) options.environment[name] = value;
  return options;
}

ProcessResult Accelerator::run(const Arguments& words, const Environment& more) {
  return finetune::testing::run(words, options(more));
}

ProcessResult Accelerator::train(const TinyRun& run, const Arguments& more,
                                 const Environment& environment) {
  return this->run(run.command(more), environment);
}

}  // namespace finetune::testing
