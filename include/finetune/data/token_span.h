// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace finetune {

// A token id as three bytes, little endian, for vocabularies above 65,536 entries.
struct PackedId {
  std::array<uint8_t, 3> bytes;

  static constexpr int32_t kLimit = 1 << 24;                // ids are below it
  [[nodiscard]] static constexpr PackedId of(int32_t id) {  // Requires: 0 <= id < kLimit
    return {
        {static_cast<uint8_t>(id), static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id >> 16)}};
  }
  constexpr operator int32_t() const {  // NOLINT: it is a number
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16;
  }
};
static_assert(sizeof(PackedId) == 3 && alignof(PackedId) == 1);

// A non-owning view of token ids, all of 16, 24 (PackedId) or 32 bits. Behaves as a range of
// int32_t.
class TokenSpan {
  // Exactly one pointer is set; its type gives the width.
  struct Ids {
    const uint16_t* narrow = nullptr;  // one of the three
    const PackedId* packed = nullptr;
    const int32_t* wide = nullptr;

    [[nodiscard]] int32_t operator[](std::ptrdiff_t i) const {
      if (narrow != nullptr) return narrow[i];
      return packed != nullptr ? int32_t{packed[i]} : wide[i];
    }
  };

 public:
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = int32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = int32_t;

    Iterator() = default;
    Iterator(const Ids& ids, difference_type at) : ids_(ids), at_(at) {}
    int32_t operator*() const { return ids_[at_]; }
    int32_t operator[](difference_type by) const { return *(*this + by); }
    Iterator& operator+=(difference_type by) {
      at_ += by;
      return *this;
    }
    Iterator& operator-=(difference_type by) { return *this += -by; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this += -1; }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    Iterator operator--(int) {
      const Iterator before = *this;
      --*this;
      return before;
    }
    friend Iterator operator+(Iterator it, difference_type by) { return it += by; }
    friend Iterator operator+(difference_type by, Iterator it) { return it += by; }
    friend Iterator operator-(Iterator it, difference_type by) { return it -= by; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }

   private:
    Ids ids_;
    difference_type at_ = 0;
  };
  using value_type = int32_t;

  TokenSpan() = default;
  TokenSpan(std::span<const int32_t> ids)  // NOLINT
      : ids_{.wide = ids.data()}, size_(ids.size()) {}
  TokenSpan(const std::vector<int32_t>& ids) : TokenSpan(std::span(ids)) {}  // NOLINT
  explicit TokenSpan(std::span<const uint16_t> ids)
      : ids_{.narrow = ids.data()}, size_(ids.size()) {}
  explicit TokenSpan(std::span<const PackedId> ids)
      : ids_{.packed = ids.data()}, size_(ids.size()) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] TokenSpan first(size_t count) const {  // Requires: count <= size()
    TokenSpan part = *this;
    part.size_ = count;
    return part;
  }
  [[nodiscard]] size_t size_bytes() const {
    if (ids_.narrow != nullptr) return size_ * sizeof(uint16_t);
    return size_ * (ids_.packed != nullptr ? sizeof(PackedId) : sizeof(int32_t));
  }
  [[nodiscard]] int32_t operator[](size_t i) const { return ids_[static_cast<std::ptrdiff_t>(i)]; }
  [[nodiscard]] int32_t front() const { return (*this)[0]; }
  [[nodiscard]] int32_t back() const { return (*this)[size_ - 1]; }
  [[nodiscard]] Iterator begin() const { return {ids_, 0}; }
  [[nodiscard]] Iterator end() const { return {ids_, static_cast<std::ptrdiff_t>(size_)}; }

  // Requires: room for size() values at `to`.
  template <class Value>
  void copy_to(Value* to) const {
    if (ids_.narrow != nullptr) {
      std::copy_n(ids_.narrow, size_, to);
    } else if (ids_.packed != nullptr) {
      std::copy_n(ids_.packed, size_, to);
    } else {
      std::copy_n(ids_.wide, size_, to);
    }
  }
  [[nodiscard]] std::vector<int32_t> to_vector() const {
    std::vector<int32_t> ids(size_);
    copy_to(ids.data());
    return ids;
  }

 private:
  Ids ids_;
  size_t size_ = 0;
};

}  // namespace finetune
