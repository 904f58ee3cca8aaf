// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/error.h"

namespace finetune {

// Collects faults, so that a user sees all of them at once.
class Problems {
 public:
  void add(const std::string& where, const std::string& message) {
    lines_.push_back(where + ": " + message);
  }

  void add_line(const std::string& line) { lines_.push_back(line); }

  [[nodiscard]] bool empty() const { return lines_.empty(); }

  void throw_if_any() const {
    if (lines_.empty()) return;
    std::string message = lines_.front();
    for (size_t i = 1; i < lines_.size(); ++i) message += '\n' + lines_[i];
    throw Error(ErrorKind::kConfig, message);
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace finetune
