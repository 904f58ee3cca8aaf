// SPDX-License-Identifier: MIT
#include "finetune/data/long_step.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "data/token_samples.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/loader.h"
#include "finetune/data/packing_plan.h"
#include "finetune/data/tf_record.h"

namespace finetune {
namespace {

using testing::message_of;

// Records the reported steps and the last position of each.
class Told {
 public:
  [[nodiscard]] ShowStep show() {
    return [this](const StepProgress& step) {
      if (steps_.empty() || steps_.back().phase != step.phase) steps_.push_back(step);
      EXPECT_GE(step.done, steps_.back().done);
      EXPECT_EQ(step.total, steps_.back().total);
      steps_.back() = step;
    };
  }
  [[nodiscard]] std::vector<std::string> finished() const {
    std::vector<std::string> phases;
    for (const StepProgress& step : steps_) {
      EXPECT_EQ(step.done, step.total) << step.phase;
      phases.push_back(step.phase);
    }
    return phases;
  }
  [[nodiscard]] const StepProgress& last() const { return steps_.back(); }

 private:
  std::vector<StepProgress> steps_;
};

using Phases = std::vector<std::string>;

Documents two_documents() {
  Documents documents;
  for (int64_t sentence = 0; sentence < 40; ++sentence) {
    documents.ids.insert(documents.ids.end(), 5, testing::ByteTokenizer::kFirstByte);
    documents.sentences.push_back(std::ssize(documents.ids));
    if (sentence % 20 == 19) documents.documents.push_back(sentence + 1);
  }
  return documents;
}

TEST(LongStep, IsToldAtItsBeginAndItsEndHoweverQuick) {
  Told reported;
  int64_t times = 0;
  const ShowStep show = reported.show();
  LongStep step({.phase = "count", .doing = "counting"}, 1000, [&](const StepProgress& progress) {
    ++times;
    show(progress);
  });
  EXPECT_EQ(reported.last().done, 0);
  for (int64_t i = 0; i < 1000; ++i) step.advance();
  EXPECT_EQ(reported.finished(), Phases{"count"});
  EXPECT_LT(times, 20);
}

TEST(LongStep, CountsBytesInThousands) {
  Told reported;
  LongStep step = LongStep::of_bytes({.phase = "hash", .doing = "hashing"}, 2'500, reported.show());
  step.add_bytes(2'500);
  EXPECT_EQ(reported.last().unit, "kB");
  EXPECT_EQ(reported.last().total, 3);
  EXPECT_EQ(reported.finished(), Phases{"hash"});
}

TEST(LongStep, StopsAtASignalAndSaysWhatItWasDoing) {
  LongStep step({.phase = "count", .doing = "counting"}, 10, {});
  step.advance();
  interrupt::request(SIGTERM);
  EXPECT_EQ(message_of<Interrupted>([&] { step.advance(); }), "counting");
  interrupt::reset();
}

TEST(LongStep, IsToldOfWhilePackingAndPlanningExamples) {
  const auto data = testing::samples_of_lengths(testing::uneven_lengths(1000));
  Told packing;
  EXPECT_GT(PackingPlan(*data, {.capacity = 128}, packing.show()).rows(), 0);
  EXPECT_EQ(packing.finished(), Phases{"pack"});

  Told planning;
  ExampleOptions options = ExampleOptions::from(testing::ByteTokenizer(), false);
  options.max_seq_length = 32;
  EXPECT_GT(DocumentExamples(two_documents(), options, planning.show()).size(), 0);
  EXPECT_EQ(planning.finished(), Phases{"plan examples"});
}

TEST(LongStep, EndsPackingAndPlanningExamplesAtASignal) {
  const auto data = testing::samples_of_lengths(testing::uneven_lengths(1000));
  interrupt::request(SIGTERM);
  EXPECT_THROW(static_cast<void>(PackingPlan(*data, {.capacity = 128})), Interrupted);
  ExampleOptions options = ExampleOptions::from(testing::ByteTokenizer(), false);
  EXPECT_THROW(static_cast<void>(DocumentExamples(two_documents(), options)), Interrupted);
  interrupt::reset();
}

TEST(LongStep, IsToldOfWithinOneFileOfRecords) {
  const testing::TemporaryFolder folder;
  std::string records;
  for (int i = 0; i < 200; ++i) records += tf_record("some bytes");
  const std::string path = folder.write("one.tfrecord", records);
  std::vector<double> fractions;
  const TfRecordFile file(FileSystem::local().open(path), path,
                          [&](double fraction) { fractions.push_back(fraction); });
  EXPECT_EQ(file.size(), 200);
  EXPECT_EQ(fractions, (std::vector<double>{0.0, 0.32, 0.64, 0.96}));
}

}  // namespace
}  // namespace finetune
