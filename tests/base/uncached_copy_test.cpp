// SPDX-License-Identifier: MIT
#include "finetune/base/uncached_copy.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune {
namespace {

TEST(UncachedCopy, CopiesAnyLengthBetweenAnyAddressesAndNothingElse) {
  std::string source(700, ' ');
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 7 + 1);
  for (size_t to = 0; to < 66; ++to) {
    for (const size_t from : {size_t{0}, size_t{1}, size_t{16}, size_t{63}}) {
      for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 511, 512}) {
        std::string target(700, '#');
        std::string expected = target;
        expected.replace(to, bytes, source, from, bytes);
        uncached_copy(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, expected) << to << " " << from << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace finetune
