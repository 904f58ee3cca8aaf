// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace finetune {

// A feature of tf.train.Example: bytes, floats or integers.
using TfFeature = std::variant<std::vector<std::string>, std::vector<float>, std::vector<int64_t>>;
// Features by name; the last of duplicate names wins, as in protocol buffers.
using TfExample = std::map<std::string, TfFeature, std::less<>>;

// Encodes to the wire format of TensorFlow's example.proto and feature.proto, features in the map's
// order.
[[nodiscard]] std::string encode_tf_example(const TfExample& example);

// Computes the position of a record; called only for error messages.
using TfPosition = std::function<std::string()>;

// Reads one example after the other into the same memory. Supports packed and unpacked lists; skips
// unknown fields. Every length is checked against the available bytes.
class TfExampleReader {
 public:
  // Throws Error(kData) that starts with `position` and names the byte within the record.
  void read(std::string_view data, const TfPosition& position);
  // Returns a feature of the last record; nullptr if it has no such feature.
  [[nodiscard]] const TfFeature* find(std::string_view name) const;
  [[nodiscard]] TfExample take();

 private:
  class Message;
  enum class Kind { kNone, kTexts, kFloats, kNumbers };
  struct Slot {
    TfFeature feature = {};
    int64_t record = 0;  // the record to which `feature` belongs
  };

  void read_entry(Message entry);
  [[nodiscard]] Kind read_feature(Message message);
  void keep(std::string_view name, Kind kind);

  std::map<std::string, Slot, std::less<>> slots_;
  // The feature being read.
  std::vector<std::string> texts_;
  std::vector<float> floats_;
  std::vector<int64_t> numbers_;
  int64_t record_ = 0;
  size_t features_ = 0;  // of this record
};

// Decodes a single example.
[[nodiscard]] TfExample decode_tf_example(std::string_view data, const std::string& position);

}  // namespace finetune
