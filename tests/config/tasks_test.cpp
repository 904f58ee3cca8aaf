// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

#include <gtest/gtest.h>

#include "finetune/config/fields.h"

namespace finetune {
namespace {

TEST(TaskKeys, NameKeysOfTheConfiguration) {
  for (const TaskKeys* task : all_task_keys()) {
    for (const std::string_view key : task->keys) {
      EXPECT_NE(find_field(key), nullptr) << task->name << ": " << key;
    }
    EXPECT_FALSE(task->metric_names.empty()) << task->name;
  }
}

TEST(TaskKeys, OfATaskThatThereIsNotAreABug) { EXPECT_ANY_THROW((void)task_keys("translation")); }

}  // namespace
}  // namespace finetune
