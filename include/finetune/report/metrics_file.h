// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

// metrics.jsonl: every logged value of a run, one JSON object a line, in the order of the log:
//   {"step":10,"epoch":0.5,"time":1763900000.25,"session":2,"tokens_per_second":8412.5,
//    "memory_mib":913,"loss":4.21,"grad_norm":1.3,"learning_rate":5e-05}
// The keys are those of log_history in trainer_state.json, which is the authority: a resumed run
// cuts the file at the first line that its log does not have. Only `time` (Unix seconds),
// `session`, `tokens_per_second` and `memory_mib` (peak so far) are not in that log.
namespace finetune {

inline constexpr char kMetricsFile[] = "metrics.jsonl";

// What is measured when a line is written.
struct MeasuredAtLog {
  double unix_time = 0;
  int64_t session = 0;  // starts of the run so far
  std::optional<double> tokens_per_second = {};
  std::optional<int64_t> memory_mib = {};
};

// Appends to the file. No member throws because of the disk: the first failure is logged as a
// warning, lines are kept and written as soon as the disk accepts them. Not thread-safe.
class MetricsFile {
 public:
  MetricsFile(FileSystem& files, std::string path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Makes the file equal to `log` (objects with `step` and `epoch`, oldest first): keeps the lines
  // that agree with it, with their times, cuts the rest, and appends what is missing without times.
  void match(const std::vector<nlohmann::ordered_json>& log);
  void append(const nlohmann::ordered_json& record, const MeasuredAtLog& measured);

 private:
  void write(std::string lines);
  void try_to_write();

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null: to be opened, after a cut to `bytes_`
  uint64_t bytes_ = 0;                  // complete lines in the file
  std::string pending_;
  bool has_warned_ = false;
};

// Calls `take` for every line that is a JSON object, with the offset of the next line; NaN and
// Infinity are read as null. `take` returns false to stop. Returns the number of lines that are no
// JSON object, a last line without a newline included. A missing file has no lines. Throws
// Error(kIo).
int64_t read_json_lines(
    FileSystem& files, const std::string& path,
    const std::function<bool(nlohmann::ordered_json&& line, uint64_t end)>& take,
    uint64_t from = 0);

// The last `bytes` of a file of lines, from the beginning of a line on; for a quick look.
[[nodiscard]] uint64_t offset_of_last_lines(FileSystem& files, const std::string& path,
                                            uint64_t bytes);

}  // namespace finetune
