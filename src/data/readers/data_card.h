// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace finetune {

// The splits of a data set, each with the patterns of its files, relative to the data set's folder.
struct CardSplits {
  std::string source;    // "README.md"
  std::string data_dir;  // patterns are relative to it; empty: to the folder
  std::vector<std::pair<std::string, std::vector<std::string>>> splits;  // empty: by names
};

// Returns what the data card in a folder (README.md, .huggingface.yaml) says of its files under
// `configs`; nullopt if it says nothing. Of several configurations the default one counts. Throws
// Error(kConfig) if none of several is the default one, or if the card is no YAML.
[[nodiscard]] std::optional<CardSplits> read_data_card(const std::string& folder,
                                                       const std::string& key);

}  // namespace finetune
