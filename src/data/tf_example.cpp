// SPDX-License-Identifier: MIT
#include "finetune/data/tf_example.h"

#include <bit>
#include <cstring>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

// Fields of Example, Features, its map's entries, Feature and the lists.
constexpr uint64_t kFeatures = 1;
constexpr uint64_t kEntry = 1;
constexpr uint64_t kName = 1;
constexpr uint64_t kFeature = 2;
constexpr uint64_t kBytesList = 1;
constexpr uint64_t kFloatList = 2;
constexpr uint64_t kInt64List = 3;
constexpr uint64_t kValue = 1;

enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80U; value >>= 7) bytes += static_cast<char>((value & 0x7fU) | 0x80U);
  bytes += static_cast<char>(value);
}

void add_bytes(std::string& bytes, uint64_t field, std::string_view value) {
  add_varint(bytes, (field << 3) | static_cast<uint64_t>(Wire::kBytes));
  add_varint(bytes, value.size());
  bytes += value;
}

std::string encode_list(const TfFeature& feature) {
  std::string list;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&feature)) {
    for (const std::string& text : *texts) add_bytes(list, kValue, text);
    return list;
  }
  std::string packed;
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&feature)) {
    for (const int64_t number : *numbers) add_varint(packed, static_cast<uint64_t>(number));
  } else {
    static_assert(std::endian::native == std::endian::little, "bytes are written as they lie");
    const auto& values = std::get<std::vector<float>>(feature);
    packed.resize(values.size() * sizeof(float));
    if (!values.empty()) std::memcpy(packed.data(), values.data(), packed.size());
  }
  if (!packed.empty()) add_bytes(list, kValue, packed);
  return list;
}

// A message, or a list in packed form, within the record.
class Reader {
 public:
  Reader(std::string_view record, const std::string& place)
      : record_(record), place_(place), end_(record.size()) {}

  [[nodiscard]] bool at_end() const { return at_ == end_; }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_end()) fail("ends within a number");
      const auto byte = static_cast<unsigned char>(record_[at_++]);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80U) return value;
    }
    fail("holds a number of more than 64 bits");
  }

  float float32() {
    float value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }

  struct Field {
    uint64_t number = 0;
    Wire wire = Wire::kVarint;
  };
  Field field() {
    const uint64_t key = varint();
    const uint64_t wire = key & 7U;
    const bool is_known = wire == 0 || wire == 1 || wire == 2 || wire == 5;
    if (!is_known || key >> 3 == 0) fail("holds a field that is none of protocol buffers'");
    return {.number = key >> 3, .wire = static_cast<Wire>(wire)};
  }

  // What a field of kBytes holds, as a part of the same record.
  Reader message() {
    const uint64_t size = varint();
    if (size > end_ - at_) fail("holds a part that is longer than what is left");
    Reader inner = *this;
    inner.end_ = at_ + static_cast<size_t>(size);
    at_ = inner.end_;
    return inner;
  }

  [[nodiscard]] std::string_view rest() const { return record_.substr(at_, end_ - at_); }

  void skip(Wire wire) {
    switch (wire) {
      case Wire::kVarint:
        static_cast<void>(varint());
        return;
      case Wire::kFixed64:
        static_cast<void>(take(8));
        return;
      case Wire::kBytes:
        static_cast<void>(message());
        return;
      case Wire::kFixed32:
        static_cast<void>(take(4));
        return;
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, place_ + " " + what + " at its byte " + std::to_string(at_) +
                                      ": it is no tf.train.Example; write the file anew");
  }

 private:
  std::string_view take(size_t size) {
    if (size > end_ - at_) fail("ends within a number");
    const std::string_view bytes = record_.substr(at_, size);
    at_ += size;
    return bytes;
  }

  std::string_view record_;
  const std::string& place_;
  size_t at_ = 0;
  size_t end_;
};

void read_values(Reader list, std::vector<std::string>& values) {
  while (!list.at_end()) {
    const Reader::Field field = list.field();
    if (field.number == kValue && field.wire == Wire::kBytes) {
      values.emplace_back(list.message().rest());
    } else {
      list.skip(field.wire);
    }
  }
}

void read_values(Reader list, std::vector<int64_t>& values) {
  while (!list.at_end()) {
    const Reader::Field field = list.field();
    if (field.number == kValue && field.wire == Wire::kVarint) {
      values.push_back(static_cast<int64_t>(list.varint()));
    } else if (field.number == kValue && field.wire == Wire::kBytes) {
      Reader packed = list.message();
      while (!packed.at_end()) values.push_back(static_cast<int64_t>(packed.varint()));
    } else {
      list.skip(field.wire);
    }
  }
}

void read_values(Reader list, std::vector<float>& values) {
  while (!list.at_end()) {
    const Reader::Field field = list.field();
    if (field.number == kValue && field.wire == Wire::kFixed32) {
      values.push_back(list.float32());
    } else if (field.number == kValue && field.wire == Wire::kBytes) {
      Reader packed = list.message();
      while (!packed.at_end()) values.push_back(packed.float32());
    } else {
      list.skip(field.wire);
    }
  }
}

template <class Value>
TfFeature read_list(Reader list) {
  std::vector<Value> values;
  read_values(list, values);
  return values;
}

std::optional<TfFeature> read_feature(Reader message) {
  std::optional<TfFeature> feature;
  while (!message.at_end()) {
    const Reader::Field field = message.field();
    if (field.wire == Wire::kBytes && field.number == kBytesList) {
      feature = read_list<std::string>(message.message());
    } else if (field.wire == Wire::kBytes && field.number == kInt64List) {
      feature = read_list<int64_t>(message.message());
    } else if (field.wire == Wire::kBytes && field.number == kFloatList) {
      feature = read_list<float>(message.message());
    } else {
      message.skip(field.wire);
    }
  }
  return feature;
}

void read_entry(Reader entry, TfExample& example) {
  std::string name;
  std::optional<TfFeature> feature;
  while (!entry.at_end()) {
    const Reader::Field field = entry.field();
    if (field.wire == Wire::kBytes && field.number == kName) {
      name = std::string(entry.message().rest());
    } else if (field.wire == Wire::kBytes && field.number == kFeature) {
      feature = read_feature(entry.message());
    } else {
      entry.skip(field.wire);
    }
  }
  if (utf8::find_invalid(name) != name.npos) entry.fail("names a feature in broken UTF-8");
  if (feature) example.insert_or_assign(std::move(name), std::move(*feature));
}

}  // namespace

std::string encode_tf_example(const TfExample& example) {
  std::string features;
  for (const auto& [name, feature] : example) {
    static constexpr uint64_t kFields[] = {kBytesList, kFloatList, kInt64List};
    std::string value;
    add_bytes(value, kFields[feature.index()], encode_list(feature));
    std::string entry;
    add_bytes(entry, kName, name);
    add_bytes(entry, kFeature, value);
    add_bytes(features, kEntry, entry);
  }
  std::string bytes;
  add_bytes(bytes, kFeatures, features);
  return bytes;
}

TfExample decode_tf_example(std::string_view data, const std::string& place) {
  TfExample example;
  Reader message(data, place);
  while (!message.at_end()) {
    const Reader::Field field = message.field();
    if (field.wire != Wire::kBytes || field.number != kFeatures) {
      message.skip(field.wire);
      continue;
    }
    Reader features = message.message();
    while (!features.at_end()) {
      const Reader::Field entry = features.field();
      if (entry.wire == Wire::kBytes && entry.number == kEntry) {
        read_entry(features.message(), example);
      } else {
        features.skip(entry.wire);
      }
    }
  }
  return example;
}

}  // namespace finetune
