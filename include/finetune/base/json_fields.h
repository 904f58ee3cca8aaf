// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/error.h"

namespace finetune {

// Both ends included, as those of NumberRange are unless it says otherwise.
struct IntegerRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  bool allow_float = false;  // 500.0, as transformers 4 wrote counts
};

struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;        // low itself is not allowed
  bool below_high = false;       // high itself is not allowed
  bool allow_nonfinite = false;  // "inf", "-inf" and "nan", for which JSON has no numbers
};

// Reads the members of one JSON object of a file and checks their types and ranges. Every message
// starts with the file and names the member with its path:
//   state.json: 'left_out[2].sample' must be a whole number of at least 0, not -1
// Keeps a reference to the object. Members that are null count as absent.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  // Throws if `object` is not a JSON object. `advice`, a literal, ends every message: "; copy the
  // file again".
  JsonFields(const Json& object, std::string where, ErrorKind kind = ErrorKind::kData,
             const char* advice = "");

  // Returns nullptr if the member is absent.
  [[nodiscard]] const Json* find(const char* name) const;
  [[nodiscard]] const Json& at(const char* name) const;

  // Required members.
  [[nodiscard]] int64_t integer(const char* name, IntegerRange range = {}) const;
  [[nodiscard]] uint64_t unsigned_integer(const char* name) const;
  [[nodiscard]] double number(const char* name, NumberRange range = {}) const;
  [[nodiscard]] bool flag(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;
  [[nodiscard]] const Json& list(const char* name, size_t longest = SIZE_MAX) const;
  [[nodiscard]] const Json& object(const char* name) const;
  // Fields of a member that is an object, and of each item of a list of objects.
  [[nodiscard]] JsonFields fields(const char* name) const;
  [[nodiscard]] std::vector<JsonFields> items(const char* name, size_t longest = SIZE_MAX) const;
  // Lists of one type; `range` applies to each item.
  [[nodiscard]] std::vector<int64_t> integers(const char* name, IntegerRange range = {},
                                              size_t longest = SIZE_MAX) const;
  [[nodiscard]] std::vector<double> numbers(const char* name, NumberRange range = {},
                                            size_t longest = SIZE_MAX) const;
  [[nodiscard]] std::vector<std::string> texts(const char* name) const;

  // Optional members: an absent one leaves `value` unchanged.
  void read(const char* name, int64_t& value, IntegerRange range = {}) const;
  void read(const char* name, double& value, NumberRange range = {}) const;
  void read(const char* name, bool& value) const;
  void read(const char* name, std::string& value) const;
  template <class Value, class... Range>
  void read(const char* name, std::optional<Value>& value, const Range&... range) const {
    if (find(name) != nullptr) read(name, value.emplace(), range...);
  }

  // Throws "'name' must be EXPECTED, not VALUE".
  [[noreturn]] void refuse(const char* name, const std::string& expected) const;

 private:
  struct Nested {};
  JsonFields(Nested, const JsonFields& parent, const Json& object, const std::string& path);

  [[nodiscard]] int64_t to_integer(const std::string& path, const Json& value,
                                   const IntegerRange& range) const;
  [[nodiscard]] double to_number(const std::string& path, const Json& value,
                                 const NumberRange& range) const;
  [[noreturn]] void refuse_value(const std::string& path, const Json& value,
                                 const std::string& expected) const;

  const Json* object_;
  std::string where_;
  std::string path_;  // of the members: "" or "left_out[2]."
  const char* advice_;
  ErrorKind kind_;
};

}  // namespace finetune
