// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/model/model_folder.h"

namespace finetune {

// A starting model whose weights were loaded, as far as it matters whether it may be used.
struct LoadedStart {
  std::string folder;
  std::string task;
  std::string model_type;
  std::string architecture;
  std::optional<std::string> config_name = {};
  size_t parameters = 0;            // of the model
  bool is_trained = true;           // now; else missing weights would answer at random
  bool ignores_mismatches = false;  // ignore_mismatched_sizes
  bool has_problem_type = false;    // the task has this key
  std::function<bool(const std::string&)> is_base = {};  // a frozen weight under an adapter
};

struct LoadVerdict {
  struct Refusal {
    ErrorKind kind = ErrorKind::kConfig;
    std::string key;
    std::string why;
  };
  std::optional<Refusal> refusal = {};
  std::vector<std::string> fresh = {};  // else: weights to draw
};

// Whether training or evaluation may begin with what was loaded. Asks nothing of files or model.
[[nodiscard]] LoadVerdict judge(const LoadReport& report, const LoadedStart& start);

}  // namespace finetune
