// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// A tf.train.Example as a row, columns sorted by name: bytes are text, NaN is null. One value is a
// scalar, several or none are a list. "answers/text" is "text" in the object "answers", as
// TensorFlow Datasets writes nested features, unless there is a feature "answers". Throws
// Error(kData), whose text begins with `place`, for bytes that are not an Example or not UTF-8.
[[nodiscard]] nlohmann::ordered_json tf_row(std::string_view example, const std::string& place);

// The Example with U+FFFD for bytes that are no UTF-8, as utf8::replace_invalid(); nothing where
// there are none. Throws as tf_row().
[[nodiscard]] std::optional<std::string> mend_tf_row(std::string_view example,
                                                     const std::string& place);

}  // namespace finetune
