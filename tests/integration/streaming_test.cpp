// SPDX-License-Identifier: MIT
// Streamed training data: the same bits wherever the run is stopped or killed and however batches
// are prepared, without a cache of tokens.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 40 steps of 8 samples: several epochs of each data set, with buffers smaller than an epoch.
struct Data {
  std::string name;
  TinyRun::Keys keys;
};

const std::vector<Data>& data() {
  static const std::vector<Data> list = {
      {"lines", {{"line_by_line", "true"}, {"max_train_samples", "130"}}},
      {"blocks", {{"max_train_samples", "150"}, {"dataloader_drop_last", "true"}}},
      {"in_order",
       {{"line_by_line", "true"},
        {"max_train_samples", "100"},
        {"train_sampling_strategy", "sequential"}}},
      {"classes",
       {{"task", "sequence_classification"},
        {"train_file", kTasks + "topics-train.jsonl"},
        {"validation_file", kTasks + "topics-valid.jsonl"}}},
      {"words",
       {{"task", "token_classification"},
        {"train_file", kTasks + "names-train.jsonl"},
        {"validation_file", kTasks + "names-valid.jsonl"}}},
      {"choices",
       {{"task", "multiple_choice"},
        {"train_file", kTasks + "choices-train.jsonl"},
        {"validation_file", kTasks + "choices-valid.jsonl"}}},
  };
  return list;
}

TinyRun::Keys streaming(const TinyRun::Keys& more = {}) {
  TinyRun::Keys keys = {{"streaming", "true"}, {"shuffle_buffer_size", "32"}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

TinyRun::Keys with_workers(TinyRun::Keys keys, int workers) {
  keys["dataloader_num_workers"] = std::to_string(workers);
  return keys;
}

Outcome streamed_whole(const TinyRun::Keys& keys) {
  const TinyRun run(keys);
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("training data: streamed"));
  EXPECT_GE(trainer_state(run.out())["epoch"], 2.0);
  return outcome_of(run);
}

TEST(Streaming, EndsInTheSameBitsWhereverItIsStoppedAndWhateverPreparesBatches) {
  for (const Data& from : data()) {
    SCOPED_TRACE(from.name);
    const TinyRun::Keys keys = streaming(from.keys);
    const Outcome expected = streamed_whole(with_workers(keys, 2));
    TinyRun run(with_workers(keys, 0));
    int workers = 0;
    for (const int step : {1, 16, 17, 33}) {
      run.train_until(step);
      workers = 2 - workers;
      run.set({{"dataloader_num_workers", std::to_string(workers)}});
    }
    const ProcessResult result = run.train();
    ASSERT_EQ(result.code, 0) << result.err;
    expect_equal(outcome_of(run), expected);
  }
}

TEST(Streaming, EndsInTheSameBitsFromPackedFilesAndOverSeveralFiles) {
  const TemporaryFolder folder;
  const std::string text = read_file(kText + "lighthouse.txt");
  const size_t half = text.find('\n', text.size() / 2) + 1;
  write_file(folder / "1.txt", text.substr(0, half));
  write_file(folder / "2.txt", text.substr(half));
  const auto keys = [&](const std::string& files) {
    return streaming(
        {{"train_file", files}, {"line_by_line", "true"}, {"max_train_samples", "120"}});
  };
  const Outcome expected =
      streamed_whole(keys("[" + folder / "1.txt" + ", " + folder / "2.txt" + "]"));
  ASSERT_EQ(testing::run({"gzip", folder / "1.txt"}).code, 0);
  ASSERT_EQ(testing::run({"zstd", "--quiet", "--rm", folder / "2.txt"}).code, 0);
  TinyRun run(keys("[" + folder / "1.txt.gz" + ", " + folder / "2.txt.zst" + "]"));
  run.train_until(11);
  run.train_until(29);
  ASSERT_EQ(run.train().code, 0);
  expect_equal(outcome_of(run), expected);
}

TEST(Streaming, EndsInTheSameBitsAfterBeingKilled) {
  const TinyRun::Keys keys = streaming(data().front().keys);
  const Outcome expected = streamed_whole(keys);
  const TinyRun run(keys);
  for (const int times : {1, 2}) {
    ProcessOptions watching;
    watching.watch = run.out();
    Process process(run.command(), watching);
    if (process.wait_for_file("checkpoint-", times)) process.send(SIGKILL);
    EXPECT_THAT(process.finish().code, AnyOf(128 + SIGKILL, 0));
  }
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), expected);
}

TEST(Streaming, EndsInTheSameBitsForAnyNumberOfProcesses) {
  const TinyRun::Keys keys = streaming({{"line_by_line", "true"},
                                        {"max_train_samples", "130"},
                                        {"full_determinism", "true"},
                                        {"effective_batch_size", "8"},
                                        {"gradient_accumulation_steps", ""}});
  const Outcome expected = streamed_whole(keys);
  const TinyRun two(keys);
  ASSERT_EQ(two.train({"--num_processes", "2", "--stop_at_step", "21"}).code, 75);
  const ProcessResult result = two.train({"--num_processes", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(read_file(two.out("model.safetensors")) == expected.model) << "other weights";
}

TEST(Streaming, WritesNoTokensAndCountsNoRows) {
  const TinyRun run(streaming({{"validation_file", ""},
                               {"eval_strategy", "'no'"},
                               {"eval_steps", ""},
                               {"max_steps", "3"}}));
  ASSERT_EQ(run.train().code, 0);
  EXPECT_FALSE(std::filesystem::exists(run.folder() / "cache"));
}

TEST(Streaming, RefusesOtherDataAndAnotherBuffer) {
  const TemporaryFolder folder;
  const std::string text = read_file(kText + "lighthouse.txt");
  write_file(folder / "a.txt", text);
  const TinyRun run(streaming({{"train_file", folder / "a.txt"}, {"line_by_line", "true"}}));
  run.train_until(9);
  const ProcessResult buffer = run.train({"--shuffle_buffer_size", "33"});
  EXPECT_EQ(buffer.code, 2);
  EXPECT_THAT(buffer.err, HasSubstr("shuffle_buffer_size is 33, but"));
  const ProcessResult memory = run.train({"--streaming", "false"});
  EXPECT_EQ(memory.code, 2) << memory.err;
  write_file(folder / "a.txt", text + "One more line.\n");
  const ProcessResult other = run.train();
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("the training data are not those that"));
  EXPECT_THAT(other.err,
              HasSubstr("a.txt', 1 file of " + std::to_string(text.size()) + " bytes, and is '"));
  write_file(folder / "a.txt", text);
  EXPECT_EQ(run.train().code, 0);
}

TEST(Streaming, SaysTheRowThatCannotBeUsedAndKeepsWhatWasTrained) {
  const TemporaryFolder folder;
  std::string text = read_file(kText + "lighthouse.txt");
  write_file(folder / "a.txt", text + "\xff\n" + text);
  const TinyRun run(streaming({{"train_file", folder / "a.txt"},
                               {"line_by_line", "true"},
                               {"shuffle_buffer_size", "2"},
                               {"max_steps", "200"},
                               {"eval_strategy", "'no'"},
                               {"eval_steps", ""}}));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("a.txt:412"));
  EXPECT_THAT(result.err, Not(HasSubstr("terminate")));
}

TEST(Streaming, IsNotPrepared) {
  const TinyRun run(streaming());
  const ProcessResult result = testing::run(finetune_command({"prepare", run.config()}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("streaming: data that are streamed are not prepared"));
}

}  // namespace
}  // namespace finetune::testing
