// SPDX-License-Identifier: MIT
#include "finetune/config/examples.h"

#include <algorithm>

#include "config/keys/words.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

struct SourceFile {
  std::string_view path;  // in the repository
  std::string_view content;
};

#include "config/example_files.inc"  // kExampleConfigs, kExampleData

// Where the files of the repository are in the folder of an example.
struct Moved {
  std::string_view from;
  std::string_view to;
};
constexpr Moved kMoved[] = {{"../", ""},
                            {"tests/fixtures/text/", "data/"},
                            {"tests/fixtures/tasks/", "data/"},
                            {"tests/fixtures/tokenizers/", "tokenizers/"},
                            {"configs/", ""}};

std::string moved(std::string_view original) {
  std::string text(original);
  for (const Moved& move : kMoved) {
    for (size_t at = 0; (at = text.find(move.from, at)) != std::string::npos;
         at += move.to.size()) {
      text.replace(at, move.from.size(), move.to);
    }
  }
  return text;
}

// The first line of a shipped configuration names the schema by its path in the repository.
std::string without_schema_line(std::string_view yaml) {
  return std::string(yaml.substr(yaml.find('\n') + 1));
}

std::string name_of(const SourceFile& config) {
  const std::string path = moved(config.path);
  return path.substr(0, path.rfind('.'));
}

}  // namespace

std::vector<std::string> example_names() {
  std::vector<std::string> names;
  for (const SourceFile& config : kExampleConfigs) names.push_back(name_of(config));
  std::ranges::sort(names);
  return names;
}

std::vector<ExampleFile> example_files(std::string_view name) {
  const auto* config = std::ranges::find(kExampleConfigs, name, name_of);
  if (config == std::ranges::end(kExampleConfigs)) {
    throw Error(ErrorKind::kUsage, "there is no example '" + std::string(name) +
                                       "'; the examples are " + join(example_names()));
  }
  std::vector<ExampleFile> files = {
      {.path = moved(config->path), .content = moved(without_schema_line(config->content))}};
  const std::string yaml = files.front().content;
  for (const SourceFile& data : kExampleData) {
    const std::string path = moved(data.path);
    // A tokenizer is named by its folder.
    const bool is_tokenizer = path.starts_with("tokenizers/");
    const std::string named = is_tokenizer ? path.substr(0, path.rfind('/')) : path;
    if (yaml.find(named) != std::string::npos) {
      files.push_back({.path = path, .content = std::string(data.content)});
    }
  }
  return files;
}

}  // namespace finetune
