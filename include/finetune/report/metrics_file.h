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

// metrics.jsonl: every logged value of a run, one JSON object per line, in the order of logging:
//   {"step":10,"epoch":0.5,"time":1763900000.25,"session":2,"tokens_per_second":8412.5,
//    "memory_mib":913,"loss":4.21,"grad_norm":1.3,"learning_rate":5e-05}
// The keys are those of log_history in trainer_state.json, which is authoritative: a resumed run
// truncates the file at the first line that differs from its log. Only `time` (Unix seconds),
// `session`, `tokens_per_second` and `memory_mib` (peak so far) are not in that log.
namespace finetune {

inline constexpr char kMetricsFile[] = "metrics.jsonl";

// Measurements at the time a line is written.
struct MeasuredAtLog {
  double unix_time = 0;
  int64_t session = 0;  // number of this session, from 1
  std::optional<double> tokens_per_second = {};
  std::optional<int64_t> memory_mib = {};
};

// Appends to the file. Disk errors are never thrown: the first is logged as a warning, and lines
// are kept in memory and written once the disk accepts them. Not thread-safe.
class MetricsFile {
 public:
  MetricsFile(FileSystem& files, std::string path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Makes the file agree with `log` (objects with `step` and `epoch`, oldest first): keeps matching
  // lines with their times, removes the rest, and writes missing ones without times.
  void match(const std::vector<nlohmann::ordered_json>& log);
  void append(const nlohmann::ordered_json& record, const MeasuredAtLog& measured);
  // Whether somebody else deleted or wrote the file since: match() makes it agree again.
  [[nodiscard]] bool is_changed() const;
  // Makes what was written survive a power cut, as far as the disk allows.
  void sync();

 private:
  void write(std::string lines);
  void try_to_write();

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;  // null: to be opened and truncated to `bytes_`
  uint64_t bytes_ = 0;                  // size of the complete lines in the file
  std::string pending_;
  bool has_warned_ = false;
};

// Returns the lines of a file that agrees with `log`: of the usable ones among `lines` those that
// match, with their times; the others are written without.
[[nodiscard]] std::string lines_of_log(const std::vector<nlohmann::ordered_json>& log,
                                       const std::vector<nlohmann::ordered_json>& lines);

// Calls `take` for every line that is a JSON object, with the offset of the next line; NaN and
// Infinity are read as null. `take` returns false to stop. Returns the number of other lines,
// including a last line without a newline. A missing file has no lines. Throws Error(kIo).
int64_t read_json_lines(
    FileSystem& files, const std::string& path,
    const std::function<bool(nlohmann::ordered_json&& line, uint64_t end)>& take,
    uint64_t from = 0);

// Returns the offset of the first line that starts within the last `bytes` of the file; for a quick
// look.
[[nodiscard]] uint64_t offset_of_last_lines(FileSystem& files, const std::string& path,
                                            uint64_t bytes);

}  // namespace finetune
