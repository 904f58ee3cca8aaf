// SPDX-License-Identifier: MIT
#include "train/start.h"

#include <gtest/gtest.h>

#include <vector>

namespace finetune {
namespace {

using Record = StartFacts::Record;

// What is really so, whether or not a start looks at it.
struct Folder {
  const char* name;
  bool restarts = false;
  Record record = Record::kNone;
  bool asks_for_more = false;
  bool is_model_whole = true;
  bool is_session_over = false;
  bool has_checkpoint = false;
  bool is_record_lost = false;
};

// The cases that decide() asks for on its way, then its decision.
std::vector<StartCase> way_of(const Folder& folder) {
  StartFacts facts{
      .restarts = folder.restarts, .record = folder.record, .asks_for_more = folder.asks_for_more};
  std::vector<StartCase> way;
  for (int question = 0; question < 10; ++question) {
    way.push_back(decide(facts));
    switch (way.back()) {
      case StartCase::kVerifyModel:
        facts.is_model_whole = folder.is_model_whole;
        break;
      case StartCase::kCompareRun:
        facts.is_compared = true;
        break;
      case StartCase::kCheckSession:
        facts.is_session_over = folder.is_session_over;
        break;
      case StartCase::kFindCheckpoint:
        facts.has_checkpoint = folder.has_checkpoint;
        facts.is_record_lost = folder.is_record_lost;
        break;
      default:
        return way;
    }
  }
  ADD_FAILURE() << folder.name << ": decide() goes in circles";
  return way;
}

struct Row {
  Folder folder;
  std::vector<StartCase> way;
};

using enum StartCase;

const std::vector<Row> kTable = {
    {{.name = "an empty folder"}, {kCheckSession, kFindCheckpoint, kFresh}},
    {{.name = "a run that was killed", .has_checkpoint = true},
     {kCheckSession, kFindCheckpoint, kResume}},
    {{.name = "no time left", .is_session_over = true, .has_checkpoint = true},
     {kCheckSession, kSessionOver}},
    {{.name = "a finished run", .record = Record::kFinished, .has_checkpoint = true},
     {kVerifyModel, kCompareRun, kFinished}},
    {{.name = "a finished run without checkpoints", .record = Record::kFinished},
     {kVerifyModel, kCompareRun, kFinished}},
    {{.name = "a finished run, no time left", .record = Record::kFinished, .is_session_over = true},
     {kVerifyModel, kCompareRun, kFinished}},
    {{.name = "more steps",
      .record = Record::kFinished,
      .asks_for_more = true,
      .has_checkpoint = true},
     {kCompareRun, kCheckSession, kFindCheckpoint, kExtend}},
    {{.name = "more steps, no time left",
      .record = Record::kFinished,
      .asks_for_more = true,
      .is_session_over = true,
      .has_checkpoint = true},
     {kCompareRun, kCheckSession, kSessionOver}},
    {{.name = "more steps without a checkpoint",
      .record = Record::kFinished,
      .asks_for_more = true},
     {kCompareRun, kCheckSession, kFindCheckpoint, kNothingToExtend}},
    {{.name = "a damaged model",
      .record = Record::kFinished,
      .is_model_whole = false,
      .has_checkpoint = true},
     {kVerifyModel, kCheckSession, kFindCheckpoint, kRebuild}},
    {{.name = "a damaged model without a checkpoint",
      .record = Record::kFinished,
      .is_model_whole = false},
     {kVerifyModel, kCheckSession, kFindCheckpoint, kNothingToRebuild}},
    {{.name = "a damaged record", .record = Record::kDamaged, .has_checkpoint = true},
     {kCheckSession, kFindCheckpoint, kRebuild}},
    {{.name = "a damaged record without a checkpoint", .record = Record::kDamaged},
     {kCheckSession, kFindCheckpoint, kNothingToRebuild}},
    {{.name = "a lost record", .has_checkpoint = true, .is_record_lost = true},
     {kCheckSession, kFindCheckpoint, kRepeatEnd}},
    {{.name = "a lost record without a checkpoint", .is_record_lost = true},
     {kCheckSession, kFindCheckpoint, kNothingToRepeat}},
    {{.name = "--restart", .restarts = true, .has_checkpoint = true}, {kCheckSession, kRestart}},
    {{.name = "--restart, no time left", .restarts = true, .is_session_over = true},
     {kCheckSession, kSessionOver}},
};

TEST(Start, DecidesEachCaseAndLooksOnlyWhereItMust) {
  for (const Row& row : kTable) EXPECT_EQ(way_of(row.folder), row.way) << row.folder.name;
}

// Whatever is in the folder: a start at step 0 loses nothing that was trained.
TEST(Start, NeverBeginsAtStepZeroBesideAnythingTrained) {
  for (int bits = 0; bits < 3 << 5; ++bits) {
    const Folder folder{.name = "any",
                        .record = static_cast<Record>(bits >> 5),
                        .asks_for_more = (bits & 1) != 0,
                        .is_model_whole = (bits & 2) != 0,
                        .is_session_over = (bits & 4) != 0,
                        .has_checkpoint = (bits & 8) != 0,
                        .is_record_lost = (bits & 16) != 0};
    if (way_of(folder).back() != kFresh) continue;
    EXPECT_EQ(folder.record, Record::kNone);
    EXPECT_FALSE(folder.has_checkpoint);
    EXPECT_FALSE(folder.is_record_lost);
  }
}

}  // namespace
}  // namespace finetune
