// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

// The configurations of configs/ that train in seconds, with their data and tokenizer. They are
// compiled in, because a wheel comes without the checkout.
namespace finetune {

struct ExampleFile {
  std::string path;  // relative to the folder that the example is written to
  std::string content;
};

// Returns the names of the examples, sorted: "smoke", "sequence_classification", ...
[[nodiscard]] std::vector<std::string> example_names();

// Returns NAME.yaml, then the files that it names. Throws Error(kUsage) for an unknown name.
[[nodiscard]] std::vector<ExampleFile> example_files(std::string_view name);

}  // namespace finetune
