// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// Converts a tf.train.Example to a row, columns sorted by name: bytes are text, NaN is null. One
// value is a scalar, several or none are a list. "answers/text" is "text" in the object "answers",
// as TensorFlow Datasets writes nested features, unless there is a feature "answers". Throws
// Error(kData) with `position` as prefix for bytes that are not an Example or not UTF-8.
[[nodiscard]] nlohmann::ordered_json tf_row(std::string_view example, const std::string& position);

// Returns the Example with bytes that are not UTF-8 replaced by U+FFFD, as in
// utf8::replace_invalid(); nullopt if there are none. Throws like tf_row().
[[nodiscard]] std::optional<std::string> repair_tf_row(std::string_view example,
                                                       const std::string& position);

}  // namespace finetune
