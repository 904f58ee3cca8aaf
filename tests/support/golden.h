// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <string>

// What messages say, word for word, is in tests/fixtures/texts/<area>.txt: by test, in the
// order in which the test asks. A sentence that was improved costs one run with
// FINETUNE_UPDATE_GOLDENS=1 and a look at the difference of that file.
namespace finetune {

// Whether `text` is the running test's next golden. Scratch folders, the sources' folder,
// hashes of 128 bits and moments count as FOLDER, SOURCE, HASH and MOMENT. One thread of a test
// asks.
::testing::AssertionResult is_golden(const std::string& text);

}  // namespace finetune

#define EXPECT_GOLDEN(text) EXPECT_TRUE(::finetune::is_golden(text))
