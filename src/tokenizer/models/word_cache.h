// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// A fast hash for tables; crafted keys can only make them slow.
[[nodiscard]] inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A word as two numbers: for words of up to kWholeBytes these and the size determine the word, for
// longer ones they are a hash and 0.
struct WordKey {
  static constexpr size_t kWholeBytes = 16;

  explicit WordKey(std::string_view word) : size(word.size()) {
    const char* data = word.data();
    const char* end = data + word.size();
    if (size > kWholeBytes) {
      first = size;
      for (; end - data > 8; data += 8) first = mix(first, load<uint64_t>(data));
      first = mix(first, load<uint64_t>(end - 8));
    } else if (size >= 8) {
      first = load<uint64_t>(data);
      second = load<uint64_t>(end - 8);
    } else if (size >= 4) {
      first = load<uint32_t>(data) | uint64_t{load<uint32_t>(end - 4)} << 32;
    } else if (size > 0) {
      first = load<uint8_t>(data) | uint64_t{load<uint8_t>(data + size / 2)} << 8 |
              uint64_t{load<uint8_t>(end - 1)} << 16;
    }
  }

  [[nodiscard]] uint64_t hash() const { return hash_of(first, second, size); }
  [[nodiscard]] static uint64_t hash_of(uint64_t first, uint64_t second, size_t size) {
    return mix(first ^ uint64_t{size} << 56, second);
  }

  uint64_t first = 0;
  uint64_t second = 0;
  size_t size;

 private:
  template <class Number>
  static Number load(const char* data) {
    Number number;
    std::memcpy(&number, data, sizeof(number));
    return number;
  }
};

[[nodiscard]] inline uint64_t hash_word(std::string_view word) { return WordKey(word).hash(); }

// A bounded map from words to a few Values; a full cache is cleared. Used by one thread and for one
// owner at a time. An entry for a word of up to 16 bytes with up to 12 bytes of Values takes half a
// cache line.
template <class Value>
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;
  static constexpr size_t kMaxValues = 64;

  // Empties the cache unless it already belongs to `owner`.
  void use_for(uint64_t owner) {
    if (owner == owner_) return;
    owner_ = owner;
    clear();
  }

  // The result is valid until the next insert(). Requires: `key` is the word's, 1 <= word.size() <=
  // kMaxWordBytes.
  [[nodiscard]] std::optional<std::span<const Value>> find(std::string_view word,
                                                           const WordKey& key) const {
    for (uint64_t i = key.hash() & mask(); slots_[i].size != 0; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.first != key.first || slot.size != key.size) continue;
      if (key.size <= WordKey::kWholeBytes
              ? slot.second == key.second
              : std::memcmp(&bytes_[slot.second], word.data(), word.size()) == 0) {
        return values_of(slot);
      }
    }
    return std::nullopt;
  }

  // Requires: as find(), at most kMaxValues, not in the cache yet.
  void insert(std::string_view word, const WordKey& key, std::span<const Value> values) {
    if (count_ == kMaxWords) clear();
    if (4 * (count_ + 1) > 3 * slots_.size()) grow();
    Slot slot;
    slot.first = key.first;
    slot.second = key.second;
    slot.size = static_cast<uint8_t>(key.size);
    slot.count = static_cast<uint8_t>(values.size());
    if (key.size > WordKey::kWholeBytes) {
      slot.second = bytes_.size();
      bytes_.insert(bytes_.end(), word.begin(), word.end());
    }
    if (values.size() <= kInside) {
      std::copy(values.begin(), values.end(), slot.values.begin());
    } else {
      slot.offset = static_cast<uint32_t>(values_.size());
      values_.insert(values_.end(), values.begin(), values.end());
    }
    position(slot);
    ++count_;
  }

 private:
  static constexpr size_t kMaxWords = size_t{1} << 16;
  static constexpr size_t kInside = 12 / sizeof(Value);
  struct alignas(32) Slot {
    uint64_t first = 0;
    uint64_t second = 0;  // for longer words: offset of their bytes
    uint8_t size = 0;     // 0: empty
    uint8_t count = 0;
    union {
      std::array<Value, kInside> values = {};  // if they fit
      uint32_t offset;                         // into values_, otherwise
    };
  };

  [[nodiscard]] uint64_t mask() const { return slots_.size() - 1; }
  [[nodiscard]] std::span<const Value> values_of(const Slot& slot) const {
    if (slot.count <= kInside) return std::span(slot.values).first(slot.count);
    return std::span(values_).subspan(slot.offset, slot.count);
  }
  void position(const Slot& slot) {
    const bool whole = slot.size <= WordKey::kWholeBytes;
    uint64_t i = WordKey::hash_of(slot.first, whole ? slot.second : 0, slot.size) & mask();
    while (slots_[i].size != 0) i = (i + 1) & mask();
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.size() * 2, {});
    for (const Slot& slot : old) {
      if (slot.size != 0) position(slot);
    }
  }
  void clear() {
    slots_.assign(1024, {});
    bytes_.clear();
    values_.clear();
    count_ = 0;
  }

  uint64_t owner_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::vector<char> bytes_;
  std::vector<Value> values_;
  size_t count_ = 0;
};

}  // namespace finetune::tokenizer
