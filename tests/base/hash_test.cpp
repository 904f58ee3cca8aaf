// SPDX-License-Identifier: MIT
#include "finetune/base/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune {
namespace {

// Expected values: xxhash.xxh3_128_hexdigest of Python.
TEST(Hash, EqualsXxh3Of128Bits) {
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_hex("saluton mondo"), "fed3392007b2bebc0eea52d4d4250522");
  EXPECT_EQ(hash_hex(std::string(100000, 'x')), "0fe996a84987456bd8b99a30e426ac41");
}

TEST(Hash, DoesNotDependOnHowTheStreamIsCut) {
  Hasher hasher;
  for (const char c : std::string("saluton mondo")) hasher.update(&c, 1);
  EXPECT_EQ(hasher.hex(), hash_hex("saluton mondo"));
  hasher.update("!");
  EXPECT_EQ(hasher.hex(), hash_hex("saluton mondo!"));
  hasher.reset();
  EXPECT_EQ(hasher.hex(), hash_hex(""));
}

}  // namespace
}  // namespace finetune
