// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/optim/schedule.h"

namespace finetune {

struct KwargRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// Reads lr_scheduler_kwargs of one schedule. Each value is read once, with its default; finish()
// then refuses keys that were not read. A null counts as absent. All members throw Error(kConfig).
class ScheduleKwargs {
 public:
  explicit ScheduleKwargs(const ScheduleOptions& options);
  ~ScheduleKwargs();

  [[nodiscard]] std::optional<double> number(const std::string& name, KwargRange range = {});
  [[nodiscard]] double number(const std::string& name, double fallback, KwargRange range = {});
  [[nodiscard]] std::optional<int64_t> integer(const std::string& name, int64_t min);
  [[nodiscard]] int64_t integer(const std::string& name, int64_t fallback, int64_t min);
  [[nodiscard]] bool flag(const std::string& name, bool fallback);
  [[nodiscard]] std::string choice(const std::string& name, const std::string& fallback,
                                   const std::vector<std::string>& known);
  void finish() const;

  // Throws Error(kConfig) about one key, or about the schedule's type if `name` is empty.
  [[noreturn]] void reject(const std::string& name, const std::string& problem) const;

 private:
  const nlohmann::ordered_json* find(const std::string& name);

  std::string type_;
  std::unique_ptr<nlohmann::ordered_json> values_;
  std::vector<std::string> known_;
};

}  // namespace finetune
