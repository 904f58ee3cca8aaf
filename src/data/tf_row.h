// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// A tf.train.Example as a row, its columns in the order of their names: bytes are text, numbers
// that are none (NaN) null. One value stands alone, several or none make a list. "answers/text" is
// "text" in the object "answers", as TensorFlow Datasets writes what is nested, unless there is a
// feature "answers". Throws Error(kData), which begins with `place`, for what is no Example and for
// bytes that are no UTF-8.
[[nodiscard]] nlohmann::ordered_json tf_row(std::string_view example, const std::string& place);

// The Example with U+FFFD for bytes that are no UTF-8, as utf8::replace_invalid(); nothing where
// there are none. Throws as tf_row().
[[nodiscard]] std::optional<std::string> mend_tf_row(std::string_view example,
                                                     const std::string& place);

}  // namespace finetune
