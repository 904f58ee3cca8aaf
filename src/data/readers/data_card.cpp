// SPDX-License-Identifier: MIT
#include "data/readers/data_card.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <system_error>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 20;  // of a card

// Returns the YAML between the first two lines of dashes; empty if there is none.
std::string front_matter(const std::string& text) {
  const size_t begin = text.starts_with("---\n") ? 4 : text.starts_with("---\r\n") ? 5 : 0;
  if (begin == 0) return "";
  const size_t end = text.find("\n---", begin - 1);
  return end == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
}

std::vector<std::string> texts_of(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsScalar()) texts.push_back(node.as<std::string>());
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) texts.push_back(item.as<std::string>());
  }
  return texts;
}

bool is_default(const YAML::Node& config) {
  if (config["default"] && config["default"].as<bool>(false)) return true;
  return config["config_name"] && config["config_name"].as<std::string>("") == "default";
}

// `data_files` in the forms that datasets reads: a pattern, a list of them, a list of {split,
// path}, or a mapping of splits to patterns.
void read_data_files(const YAML::Node& files, CardSplits& card) {
  if (files.IsMap()) {
    for (const auto& item : files) {
      card.splits.emplace_back(item.first.as<std::string>(), texts_of(item.second));
    }
    return;
  }
  if (files.IsSequence() && files.size() > 0 && files[0].IsMap()) {
    for (const YAML::Node& item : files) {
      card.splits.emplace_back(item["split"].as<std::string>(), texts_of(item["path"]));
    }
    return;
  }
  card.splits.emplace_back("train", texts_of(files));
}

std::optional<CardSplits> read_configs(const YAML::Node& configs, const std::string& path,
                                       const std::string& key) {
  if (!configs || !configs.IsSequence() || configs.size() == 0) return std::nullopt;
  std::optional<YAML::Node> chosen;
  std::vector<std::string> names;
  for (const YAML::Node& config : configs) {
    names.push_back("'" + printable_line(config["config_name"].as<std::string>("default")) + "'");
    if (configs.size() == 1 || is_default(config)) chosen = config;
  }
  if (!chosen) {
    throw Error(ErrorKind::kConfig, key + ": '" + path + "' has several configurations (" +
                                        join(names) +
                                        ") and no default one; name the files of one");
  }
  CardSplits card{.source = file_name(path), .data_dir = {}, .splits = {}};
  if ((*chosen)["data_dir"]) card.data_dir = (*chosen)["data_dir"].as<std::string>();
  if ((*chosen)["data_files"]) read_data_files((*chosen)["data_files"], card);
  if (card.splits.empty() && card.data_dir.empty()) return std::nullopt;
  return card;
}

}  // namespace

std::optional<CardSplits> read_data_card(const std::string& folder, const std::string& key) {
  // datasets lets the second replace keys of the first.
  for (const char* name : {".huggingface.yaml", "README.md"}) {
    const std::string path = join_path(folder, name);
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;  // links are followed
    const std::string text = FileSystem::local().read_all(path, kMostBytes);
    try {
      const bool is_card = path.ends_with(".md");
      const YAML::Node yaml = YAML::Load(is_card ? front_matter(text) : text);
      if (!yaml.IsMap()) continue;
      if (auto card = read_configs(yaml["configs"], path, key)) return card;
    } catch (const YAML::Exception& problem) {
      throw Error(ErrorKind::kConfig,
                  format_text("{}: '{}', line {}: the data card cannot be read ({}); correct its "
                              "configs, or name the files",
                              key, path, problem.mark.line + 2, problem.msg));
    }
  }
  return std::nullopt;
}

}  // namespace finetune
