// SPDX-License-Identifier: MIT
#include "finetune/data/tf_example.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

// Field numbers of Example, Features, its map's entries, Feature and the lists.
constexpr uint64_t kFeatures = 1;
constexpr uint64_t kEntry = 1;
constexpr uint64_t kName = 1;
constexpr uint64_t kFeature = 2;
constexpr uint64_t kBytesList = 1;
constexpr uint64_t kFloatList = 2;
constexpr uint64_t kInt64List = 3;
constexpr uint64_t kValue = 1;

enum class Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
struct FieldKey {
  uint64_t number = 0;
  Wire wire = Wire::kVarint;
};

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

}  // namespace

// A message, or a list in packed form, within the record.
class TfExampleReader::Message {
 public:
  Message(std::string_view record, const TfPosition& position)
      : record_(record), position_(position), end_(record.size()) {}

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

  FieldKey field() {
    const uint64_t key = varint();
    const uint64_t wire = key & 7U;
    const bool is_known = wire == 0 || wire == 1 || wire == 2 || wire == 5;
    if (!is_known || key >> 3 == 0) fail("holds a field that is none of protocol buffers'");
    return {.number = key >> 3, .wire = static_cast<Wire>(wire)};
  }

  // Returns the content of a field of type kBytes as a part of the same record.
  Message message() {
    const uint64_t size = varint();
    if (size > end_ - at_) fail("has a field that is longer than the rest of the record");
    Message inner = *this;
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
    throw Error(ErrorKind::kData,
                format_text("{} {} at its byte {}: it is no tf.train.Example; write the file again",
                            position_(), what, at_));
  }

 private:
  std::string_view take(size_t size) {
    if (size > end_ - at_) fail("ends within a number");
    const std::string_view bytes = record_.substr(at_, size);
    at_ += size;
    return bytes;
  }

  std::string_view record_;
  const TfPosition& position_;
  size_t at_ = 0;
  size_t end_;
};

namespace {

template <class List>
void read_values(List list, std::vector<std::string>& values) {
  values.clear();
  while (!list.at_end()) {
    const auto field = list.field();
    if (field.number == kValue && field.wire == Wire::kBytes) {
      values.emplace_back(list.message().rest());
    } else {
      list.skip(field.wire);
    }
  }
}

template <class List>
void read_values(List list, std::vector<int64_t>& values) {
  values.clear();
  while (!list.at_end()) {
    const auto field = list.field();
    if (field.number == kValue && field.wire == Wire::kVarint) {
      values.push_back(static_cast<int64_t>(list.varint()));
    } else if (field.number == kValue && field.wire == Wire::kBytes) {
      List packed = list.message();
      while (!packed.at_end()) values.push_back(static_cast<int64_t>(packed.varint()));
    } else {
      list.skip(field.wire);
    }
  }
}

template <class List>
void read_values(List list, std::vector<float>& values) {
  values.clear();
  while (!list.at_end()) {
    const auto field = list.field();
    if (field.number == kValue && field.wire == Wire::kFixed32) {
      values.push_back(list.float32());
    } else if (field.number == kValue && field.wire == Wire::kBytes) {
      List packed = list.message();
      while (!packed.at_end()) values.push_back(packed.float32());
    } else {
      list.skip(field.wire);
    }
  }
}

}  // namespace

TfExampleReader::Kind TfExampleReader::read_feature(Message message) {
  Kind kind = Kind::kNone;
  while (!message.at_end()) {
    const FieldKey field = message.field();
    if (field.wire == Wire::kBytes && field.number == kBytesList) {
      read_values(message.message(), texts_);
      kind = Kind::kTexts;
    } else if (field.wire == Wire::kBytes && field.number == kInt64List) {
      read_values(message.message(), numbers_);
      kind = Kind::kNumbers;
    } else if (field.wire == Wire::kBytes && field.number == kFloatList) {
      read_values(message.message(), floats_);
      kind = Kind::kFloats;
    } else {
      message.skip(field.wire);
    }
  }
  return kind;
}

void TfExampleReader::read_entry(Message entry) {
  std::string_view name;
  Kind kind = Kind::kNone;
  while (!entry.at_end()) {
    const FieldKey field = entry.field();
    if (field.wire == Wire::kBytes && field.number == kName) {
      name = entry.message().rest();
    } else if (field.wire == Wire::kBytes && field.number == kFeature) {
      kind = read_feature(entry.message());
    } else {
      entry.skip(field.wire);
    }
  }
  if (utf8::find_invalid(name) != name.npos) entry.fail("names a feature in broken UTF-8");
  if (kind != Kind::kNone) keep(name, kind);
}

// Stores the feature that was read; the slot's previous value becomes the memory for the next
// feature.
void TfExampleReader::keep(std::string_view name, Kind kind) {
  const auto put = [](TfFeature& feature, auto& values) {
    using Values = std::remove_reference_t<decltype(values)>;
    if (!std::holds_alternative<Values>(feature)) feature.emplace<Values>();
    std::get<Values>(feature).swap(values);
  };
  auto found = slots_.find(name);
  if (found == slots_.end()) found = slots_.emplace(std::string(name), Slot{}).first;
  Slot& slot = found->second;
  if (slot.record != record_) ++features_;
  slot.record = record_;
  if (kind == Kind::kTexts) {
    put(slot.feature, texts_);
  } else if (kind == Kind::kNumbers) {
    put(slot.feature, numbers_);
  } else {
    put(slot.feature, floats_);
  }
}

void TfExampleReader::read(std::string_view data, const TfPosition& position) {
  ++record_;
  features_ = 0;
  Message message(data, position);
  while (!message.at_end()) {
    const FieldKey field = message.field();
    if (field.wire != Wire::kBytes || field.number != kFeatures) {
      message.skip(field.wire);
      continue;
    }
    Message features = message.message();
    while (!features.at_end()) {
      const FieldKey entry = features.field();
      if (entry.wire == Wire::kBytes && entry.number == kEntry) {
        read_entry(features.message());
      } else {
        features.skip(entry.wire);
      }
    }
  }
  // Removes features of earlier records, so that changing names do not accumulate.
  if (slots_.size() > features_) {
    std::erase_if(slots_, [this](const auto& slot) { return slot.second.record != record_; });
  }
}

const TfFeature* TfExampleReader::find(std::string_view name) const {
  const auto found = slots_.find(name);
  return found == slots_.end() ? nullptr : &found->second.feature;
}

TfExample TfExampleReader::take() {
  TfExample example;
  for (auto& [name, slot] : slots_)
    example.emplace_hint(example.end(), name, std::move(slot.feature));
  slots_.clear();
  return example;
}

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

TfExample decode_tf_example(std::string_view data, const std::string& position) {
  TfExampleReader reader;
  reader.read(data, [&position] { return position; });
  return reader.take();
}

}  // namespace finetune
