// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace finetune {

// A logged value by step. NaN is no value.
struct SeriesPoint {
  int64_t step = 0;
  double value = 0;
  double time = 0;      // Unix seconds; NaN: not known
  int64_t session = 0;  // 0: not known
};

// A curve of any length in bounded memory: where there are too many points, the least and the
// greatest of each range of equally many points are kept, and where there are any non-finite ones
// one of them.
class Curve {
 public:
  void add(const SeriesPoint& point);
  [[nodiscard]] bool empty() const { return points_ == 0; }
  [[nodiscard]] const SeriesPoint& newest() const { return newest_.point; }  // requires: not empty
  // At most about `most` points in the order of add(), the first and the last among them.
  [[nodiscard]] std::vector<SeriesPoint> points(size_t most) const;

 private:
  struct Numbered {
    int64_t number = 0;  // of add()
    SeriesPoint point;
  };
  // The least, the greatest and a non-finite point of a range.
  using Extremes = std::array<std::optional<Numbered>, 3>;

  static void take(const Numbered& point, Extremes& extremes);
  static std::vector<Numbered> in_order(const std::vector<Extremes>& ranges);
  static std::vector<Extremes> in_wider_ranges(const std::vector<Numbered>& points, size_t ranges);
  void halve_ranges();

  int64_t points_ = 0;
  Numbered first_;
  Numbered newest_;
  int64_t range_points_ = 1;  // of each range but the last
  std::vector<Extremes> ranges_;
};

}  // namespace finetune
