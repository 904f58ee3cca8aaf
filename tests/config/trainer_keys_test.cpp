// SPDX-License-Identifier: MIT
// Argument names of TRL, PEFT, transformers and Unsloth.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "config/reading/aliases.h"
#include "config/reading/other_names.h"
#include "finetune/config/fields.h"
#include "support/paths.h"

namespace finetune {
namespace {

// Each is a key, an old name of one, or has an answer in other_names.txt.
TEST(TrainerKeys, AreKeysOrAreAnswered) {
  std::ifstream list(source_dir() + "/tests/fixtures/config/trainer_keys.txt");
  ASSERT_TRUE(list);
  int count = 0;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::string name = line.substr(0, line.find(' '));
    const Alias* alias = find_alias(name);
    const bool is_known = find_field(name) != nullptr || (alias != nullptr && alias->task.empty());
    EXPECT_TRUE(is_known || !explain_other_name(name).empty())
        << "no key and no line in other_names.txt: " << line;
    ++count;
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace finetune
