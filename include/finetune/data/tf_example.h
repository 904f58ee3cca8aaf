// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace finetune {

// A feature of tf.train.Example: bytes, numbers.
using TfFeature = std::variant<std::vector<std::string>, std::vector<float>, std::vector<int64_t>>;
// By name; of a name that stands there twice the last counts, as protocol buffers have it.
using TfExample = std::map<std::string, TfFeature, std::less<>>;

// In the wire format of TensorFlow's example.proto and feature.proto; features in the map's order.
[[nodiscard]] std::string encode_tf_example(const TfExample& example);

// Packed and plain lists, unknown fields passed over. Every length is checked against what is
// there. Throws Error(kData), which begins with `place` and tells the byte within the record.
[[nodiscard]] TfExample decode_tf_example(std::string_view data, const std::string& place);

}  // namespace finetune
