// SPDX-License-Identifier: MIT
#include "finetune/tensor/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "support/golden.h"

namespace finetune {
namespace {

// Like oneDNN's exception, which gives no reason.
struct LibraryError : std::exception {
  explicit LibraryError(const char* text) : message(text) {}
  [[nodiscard]] const char* what() const noexcept override { return message; }
  const char* message;
};

template <class Thrown>
std::string said_of(const Thrown& thrown) {
  try {
    explaining_lack_of_memory("lower it", [&]() -> int { throw thrown; });
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(OutOfMemory, IsExplainedWhicheverLibraryRanOut) {
  EXPECT_GOLDEN(said_of(std::bad_alloc()));
  EXPECT_GOLDEN(said_of(LibraryError("could not create a primitive")));
  EXPECT_GOLDEN(said_of(std::runtime_error("could not create a memory object")));
}

TEST(OutOfMemory, LeavesOtherErrorsAsTheyAre) {
  EXPECT_EQ(said_of(LibraryError("bad shape")), "bad shape");
  EXPECT_EQ(said_of(Error(ErrorKind::kData, "a line")), "a line");
  EXPECT_FALSE(is_lack_of_memory(std::make_exception_ptr(std::runtime_error("a line"))));
}

}  // namespace
}  // namespace finetune
