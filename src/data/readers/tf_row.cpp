// SPDX-License-Identifier: MIT
#include "data/readers/tf_row.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/data/tf_example.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(int64_t value) { return value; }
Json json_of(float value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json json_of(std::string& value) { return std::move(value); }

template <class Value>
Json column_of(std::vector<Value>& values) {
  if (values.size() == 1) return json_of(values.front());
  Json list = Json::array();
  list.get_ref<Json::array_t&>().reserve(values.size());
  for (auto& value : values) list.push_back(json_of(value));
  return list;
}

void check_texts(const std::vector<std::string>& texts, const std::string& feature,
                 const std::string& position) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t byte = utf8::find_invalid(texts[i]);
    if (byte == std::string::npos) continue;
    throw Error(ErrorKind::kData,
                format_text("{}: feature '{}' holds bytes that are no UTF-8 (from byte {}{} on); "
                            "write text alone to the records, or set encoding_errors: replace",
                            position, feature, byte + 1,
                            texts.size() > 1 ? format_text(" of its value {}", i + 1) : ""));
  }
}

// Builds a row from features in the order of their names: the members of an object are consecutive
// and each name occurs once, so no lookup is needed.
class RowBuilder {
 public:
  explicit RowBuilder(const TfExample& example) : example_(example) {}

  void add(const std::string& feature, Json column) {
    const size_t slash = feature.find('/');
    const bool is_nested = slash != std::string::npos && slash > 0 && slash + 1 < feature.size() &&
                           !example_.contains(feature.substr(0, slash));
    auto& columns = columns_of(row_);
    if (!is_nested) {
      columns.emplace_back(feature, std::move(column));
      return;
    }
    const std::string outer = feature.substr(0, slash);
    if (columns.empty() || columns.back().first != outer) {
      columns.emplace_back(outer, Json::object());
    }
    columns_of(columns.back().second).emplace_back(feature.substr(slash + 1), std::move(column));
  }

  [[nodiscard]] Json take() { return std::move(row_); }

 private:
  static Json::object_t& columns_of(Json& object) { return object.get_ref<Json::object_t&>(); }

  const TfExample& example_;
  Json row_ = Json::object();
};

}  // namespace

Json tf_row(std::string_view example, const std::string& position) {
  TfExample features = decode_tf_example(example, position);
  RowBuilder row(features);
  for (auto& [name, feature] : features) {
    if (const auto* texts = std::get_if<std::vector<std::string>>(&feature)) {
      check_texts(*texts, name, position);
    }
    row.add(name, std::visit([](auto& values) { return column_of(values); }, feature));
  }
  return row.take();
}

std::optional<std::string> repair_tf_row(std::string_view example, const std::string& position) {
  TfExample features = decode_tf_example(example, position);
  bool broken = false;
  for (auto& [name, feature] : features) {
    auto* texts = std::get_if<std::vector<std::string>>(&feature);
    if (texts == nullptr) continue;
    for (std::string& text : *texts) {
      if (utf8::find_invalid(text) == std::string::npos) continue;
      text = utf8::replace_invalid(text);
      broken = true;
    }
  }
  if (!broken) return std::nullopt;
  return encode_tf_example(features);
}

}  // namespace finetune
