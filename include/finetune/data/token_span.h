// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace finetune {

// A view of token ids: 16 bits each if all ids of the data fit, else 32. Reads as a range of
// int32_t; owns nothing.
class TokenSpan {
 public:
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = int32_t;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = int32_t;

    Iterator() = default;
    Iterator(const uint16_t* narrow, const int32_t* wide, difference_type at)
        : narrow_(narrow), wide_(wide), at_(at) {}
    int32_t operator*() const { return narrow_ != nullptr ? int32_t{narrow_[at_]} : wide_[at_]; }
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
    const uint16_t* narrow_ = nullptr;
    const int32_t* wide_ = nullptr;
    difference_type at_ = 0;
  };
  using value_type = int32_t;

  TokenSpan() = default;
  TokenSpan(std::span<const int32_t> ids) : wide_(ids.data()), size_(ids.size()) {}  // NOLINT
  TokenSpan(const std::vector<int32_t>& ids) : TokenSpan(std::span(ids)) {}          // NOLINT
  explicit TokenSpan(std::span<const uint16_t> ids) : narrow_(ids.data()), size_(ids.size()) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] TokenSpan first(size_t count) const {  // Requires: count <= size()
    TokenSpan part = *this;
    part.size_ = count;
    return part;
  }
  [[nodiscard]] size_t size_bytes() const {
    return size_ * (narrow_ != nullptr ? sizeof(uint16_t) : sizeof(int32_t));
  }
  [[nodiscard]] int32_t operator[](size_t i) const {
    return narrow_ != nullptr ? int32_t{narrow_[i]} : wide_[i];
  }
  [[nodiscard]] int32_t front() const { return (*this)[0]; }
  [[nodiscard]] int32_t back() const { return (*this)[size_ - 1]; }
  [[nodiscard]] Iterator begin() const { return {narrow_, wide_, 0}; }
  [[nodiscard]] Iterator end() const {
    return {narrow_, wide_, static_cast<std::ptrdiff_t>(size_)};
  }

  // Requires: room for size() values at `to`.
  template <class Value>
  void copy_to(Value* to) const {
    if (narrow_ != nullptr) {
      std::copy_n(narrow_, size_, to);
    } else {
      std::copy_n(wide_, size_, to);
    }
  }
  [[nodiscard]] std::vector<int32_t> to_vector() const {
    std::vector<int32_t> ids(size_);
    copy_to(ids.data());
    return ids;
  }

 private:
  const uint16_t* narrow_ = nullptr;  // one of the two
  const int32_t* wide_ = nullptr;
  size_t size_ = 0;
};

}  // namespace finetune
