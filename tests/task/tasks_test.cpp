// SPDX-License-Identifier: MIT
#include "finetune/task/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

using testing::TemporaryFolder;

TEST(Tasks, AreThoseOfTheConfiguration) {
  ASSERT_EQ(all_tasks().size(), all_task_keys().size());
  for (size_t i = 0; i < all_tasks().size(); ++i) {
    EXPECT_EQ(&all_tasks()[i]->keys, all_task_keys()[i]);
    EXPECT_EQ(find_task(all_task_keys()[i]->name), all_tasks()[i]);
  }
  EXPECT_EQ(find_task("translation"), nullptr);
}

TEST(TrainedRecord, IsOfTasksWithTheSameRows) {
  const TemporaryFolder folder;
  const DataRecord record{.task = "multiple_choice", .columns = {.context_column = "c"}};
  folder.write(kDataRecordFile, record.to_text());
  EXPECT_EQ(trained_record(folder.path(), RowTask::kMultipleChoice).columns, record.columns);
  EXPECT_TRUE(trained_record(folder.path(), RowTask::kTokenClassification).empty());
}

TEST(TrainedRecord, IsEmptyForAnUnknownTask) {
  const TemporaryFolder folder;
  const DataRecord record{.task = "translation", .columns = {.text_column = "c"}};
  folder.write(kDataRecordFile, record.to_text());
  EXPECT_TRUE(trained_record(folder.path(), RowTask::kText).empty());
}

}  // namespace
}  // namespace finetune
