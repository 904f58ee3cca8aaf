// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "finetune/base/error.h"

namespace finetune {

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  int max_depth = 64;
  bool allow_nan = false;  // Python writes NaN and Infinity; true: read them as null
};

// A problem in a JSON text and its position. Line and column count from 1, the column in code
// points; both are 0 if the problem has no single position (size, depth, a duplicate key).
struct JsonFault {
  std::string problem;  // "is not valid JSON"
  int64_t line = 0;
  int64_t column = 0;
  std::string found =
      {};  // for a syntax error: "found '}', where a key in double quotes is expected"
};

// "where:line: problem", without the line if it is unknown.
class JsonError : public Error {
 public:
  JsonError(ErrorKind kind, const std::string& where, JsonFault fault);
  [[nodiscard]] const JsonFault& fault() const { return fault_; }

 private:
  JsonFault fault_;
};

// Parses strict JSON: UTF-8, no duplicate keys, bounded depth and size. Keys keep their order.
// Throws JsonError with `where` (a path, or "path:line") as prefix.
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, const std::string& where,
                                                ErrorKind kind = ErrorKind::kData,
                                                const JsonLimits& limits = {});

// Reads and parses a file; a missing file is Error(kind) with its path.
[[nodiscard]] nlohmann::ordered_json read_json_file(const std::string& path,
                                                    ErrorKind kind = ErrorKind::kData,
                                                    const JsonLimits& limits = {});

// Returns the shortest text that reads back to the same double ("2e-05", "0.1"), like Python's
// repr.
[[nodiscard]] std::string format_double(double value);

}  // namespace finetune
