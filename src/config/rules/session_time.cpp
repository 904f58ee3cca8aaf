// SPDX-License-Identifier: MIT
#include "finetune/config/session_time.h"

#include <cstdio>
#include <ctime>
#include <string_view>

namespace finetune {
namespace {

// Parses a text from the front; every take_...() returns false or nullopt if the text does not
// match.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}

  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<int> take_digits(size_t count, int most) {
    if (rest_.size() < count) return std::nullopt;
    int number = 0;
    for (size_t i = 0; i < count; ++i) {
      if (rest_[i] < '0' || rest_[i] > '9') return std::nullopt;
      number = 10 * number + (rest_[i] - '0');
    }
    if (number > most) return std::nullopt;
    rest_.remove_prefix(count);
    return number;
  }
  void skip_fraction() {
    if (!take('.')) return;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') rest_.remove_prefix(1);
  }
  [[nodiscard]] bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Parses HH:MM or HH:MM:SS.
bool take_clock(TextReader& text, std::tm& time) {
  const std::optional<int> hour = text.take_digits(2, 23);
  if (!hour || !text.take(':')) return false;
  const std::optional<int> minute = text.take_digits(2, 59);
  if (!minute) return false;
  time.tm_hour = *hour;
  time.tm_min = *minute;
  time.tm_sec = 0;
  if (!text.take(':')) return true;
  const std::optional<int> second = text.take_digits(2, 59);
  if (!second) return false;
  time.tm_sec = *second;
  text.skip_fraction();
  return true;
}

// Parses YYYY-MM-DD.
bool take_date(TextReader& text, std::tm& time) {
  const std::optional<int> year = text.take_digits(4, 9999);
  if (!year || !text.take('-')) return false;
  const std::optional<int> month = text.take_digits(2, 12);
  if (!month || *month == 0 || !text.take('-')) return false;
  const std::optional<int> day = text.take_digits(2, 31);
  if (!day || *day == 0) return false;
  time.tm_year = *year - 1900;
  time.tm_mon = *month - 1;
  time.tm_mday = *day;
  std::tm copy = time;
  (void)::timegm(&copy);
  return copy.tm_mon == time.tm_mon;  // no 30th of February
}

// Parses Z, +HH, +HHMM or +HH:MM to seconds east of Greenwich.
std::optional<int64_t> take_zone(TextReader& text) {
  if (text.take('Z')) return 0;
  const int64_t sign = text.take('+') ? 1 : text.take('-') ? -1 : 0;
  if (sign == 0) return std::nullopt;
  const std::optional<int> hours = text.take_digits(2, 14);
  if (!hours) return std::nullopt;
  (void)text.take(':');
  const int minutes = text.is_at_end() ? 0 : text.take_digits(2, 59).value_or(-1);
  if (minutes < 0) return std::nullopt;
  return sign * (*hours * 3600 + minutes * 60);
}

int64_t local_seconds(std::tm time) {
  time.tm_isdst = -1;
  return static_cast<int64_t>(std::mktime(&time));
}

std::optional<int64_t> next_clock_time(const std::string& text, int64_t now) {
  TextReader reader(text);
  const auto now_seconds = static_cast<std::time_t>(now);
  std::tm time = {};
  ::localtime_r(&now_seconds, &time);
  if (!take_clock(reader, time) || !reader.is_at_end()) return std::nullopt;
  if (const int64_t today = local_seconds(time); today > now) return today;
  ++time.tm_mday;
  return local_seconds(time);
}

}  // namespace

std::optional<int64_t> session_time(const std::string& text, int64_t now) {
  if (const std::optional<int64_t> next = next_clock_time(text, now)) return next;
  TextReader reader(text);
  std::tm time = {};
  if (!take_date(reader, time)) return std::nullopt;
  if (!reader.take('T') && !reader.take(' ')) return std::nullopt;
  if (!take_clock(reader, time)) return std::nullopt;
  (void)reader.take(' ');
  if (reader.is_at_end()) return local_seconds(time);
  const std::optional<int64_t> east = take_zone(reader);
  if (!east || !reader.is_at_end()) return std::nullopt;
  return static_cast<int64_t>(::timegm(&time)) - *east;
}

}  // namespace finetune
