// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace finetune {

// XXH3-128 over a stream of bytes. Not cryptographic: detects damage and differences, not
// tampering.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void update(const void* data, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  [[nodiscard]] std::string hex() const;  // 32 lower-case digits; updates may follow
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string hash_hex(std::string_view bytes);
// Returns the XXH3-64 of bytes in memory: a checksum for blocks of a file.
[[nodiscard]] uint64_t hash_number(const void* data, size_t size);

}  // namespace finetune
