// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/token_model.h"

namespace finetune::tokenizer {

// Fast enough for tables whose keys may be hostile only in the sense of being slow.
[[nodiscard]] inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

[[nodiscard]] inline uint64_t hash_word(std::string_view word) {
  uint64_t hash = word.size();
  const char* data = word.data();
  size_t left = word.size();
  for (; left > 8; left -= 8, data += 8) {
    uint64_t part;
    std::memcpy(&part, data, 8);
    hash = mix(hash, part);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
  return mix(hash, tail);
}

// Words and their pieces, bounded: a full cache starts anew. One thread's, for one model at a time.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;

  // Empties the cache unless it already belongs to the model `owner`.
  void use_for(uint64_t owner) {
    if (owner == owner_) return;
    owner_ = owner;
    clear();
  }

  [[nodiscard]] std::optional<std::span<const Piece>> find(std::string_view word,
                                                           uint64_t hash) const {
    for (uint64_t i = hash & mask(); slots_[i].size != 0; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.hash == hash && slot.size == word.size() &&
          std::memcmp(&bytes_[slot.bytes], word.data(), word.size()) == 0) {
        return std::span<const Piece>(pieces_).subspan(slot.pieces, slot.count);
      }
    }
    return std::nullopt;
  }

  // Requires: 1 <= word.size() <= kMaxWordBytes, at most as many pieces, not in the cache yet.
  void insert(std::string_view word, uint64_t hash, std::span<const Piece> pieces) {
    if (count_ == kMaxWords) clear();
    if (2 * (count_ + 1) > slots_.size()) grow();
    const Slot slot{hash, static_cast<uint32_t>(bytes_.size()),
                    static_cast<uint32_t>(pieces_.size()), static_cast<uint16_t>(word.size()),
                    static_cast<uint16_t>(pieces.size())};
    bytes_.insert(bytes_.end(), word.begin(), word.end());
    pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
    place(slot);
    ++count_;
  }

 private:
  static constexpr size_t kMaxWords = size_t{1} << 16;
  struct Slot {
    uint64_t hash = 0;
    uint32_t bytes = 0;
    uint32_t pieces = 0;
    uint16_t size = 0;  // 0: empty
    uint16_t count = 0;
  };

  [[nodiscard]] uint64_t mask() const { return slots_.size() - 1; }
  void place(const Slot& slot) {
    uint64_t i = slot.hash & mask();
    while (slots_[i].size != 0) i = (i + 1) & mask();
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.size() * 2, {});
    for (const Slot& slot : old) {
      if (slot.size != 0) place(slot);
    }
  }
  void clear() {
    slots_.assign(1024, {});
    bytes_.clear();
    pieces_.clear();
    count_ = 0;
  }

  uint64_t owner_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::vector<char> bytes_;
  std::vector<Piece> pieces_;
  size_t count_ = 0;
};

}  // namespace finetune::tokenizer
