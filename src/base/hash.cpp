// SPDX-License-Identifier: MIT
#include "finetune/base/hash.h"

#include <xxhash.h>

#include "finetune/base/error.h"

namespace finetune {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  FT_CHECK(state_->xxh != nullptr, "no memory for a hash state");
  reset();
}
Hasher::~Hasher() = default;

void Hasher::update(const void* data, size_t size) { XXH3_128bits_update(state_->xxh, data, size); }

void Hasher::reset() { XXH3_128bits_reset(state_->xxh); }

std::string Hasher::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->xxh));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

uint64_t hash_number(const void* data, size_t size) { return XXH3_64bits(data, size); }

std::string hash_hex(std::string_view bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.hex();
}

}  // namespace finetune
