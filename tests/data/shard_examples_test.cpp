// SPDX-License-Identifier: MIT
#include "finetune/data/shard_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/data_files.h"
#include "finetune/data/shard_writer.h"
#include "finetune/data/tf_example.h"
#include "support/file_content.h"
#include "support/golden.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

constexpr ShardLayout kLayout = {.max_seq_length = 12, .max_predictions = 3, .pad_id = 1};

// Makes an example that is unique for its number.
PretrainingExample numbered(int64_t number) {
  const auto id = static_cast<int32_t>(10 + number);
  return {.input_ids = {0, id, 4, 2, id, 2},
          .segment_ids = {0, 0, 0, 0, 1, 1},
          .masked_lm_positions = {2},
          .masked_lm_ids = {id},
          .next_sentence_label = number % 2};
}

std::string shard(int64_t begin, int64_t end) {
  std::string bytes;
  for (int64_t i = begin; i < end; ++i) bytes += tf_record(encode_example(numbered(i), kLayout));
  return bytes;
}

ShardOptions shard_options() {
  return {.pad_id = 1, .vocabulary_limit = 200, .max_seq_length = 12, .token_types = 2};
}

// Numbered examples, made on demand.
class NumberedExamples final : public PretrainingDataset {
 public:
  explicit NumberedExamples(int64_t size) : size_(size) {}
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] std::string fingerprint() const override { return std::to_string(size_); }
  void make(int64_t index, const SampleKey&, PretrainingExample& example) const override {
    if (before_each) before_each();
    example = numbered(index);
  }
  std::function<void()> before_each = {};

 private:
  int64_t size_;
};

TEST(ShardExamples, AreNumberedThroughUnequalShards) {
  const TemporaryFolder folder;
  folder.write("a.tfrecord", shard(0, 1));
  folder.write("b.tfrecord", shard(1, 18));
  folder.write("c.tfrecord", shard(18, 23));
  const ShardExamples data({folder / "*.tfrecord"}, shard_options());
  ASSERT_EQ(data.size(), 23);
  EXPECT_EQ(data.shards(), 3);
  for (int64_t i = 0; i < 23; ++i) {
    EXPECT_EQ(data.example({.index = i, .epoch = i % 3}), numbered(i));
  }
}

// A set of shards of which some are still missing is rejected.
TEST(ShardExamples, AreNotTakenWhereSomeAreStillToBeWritten) {
  const TemporaryFolder folder;
  folder.write("examples-00000-of-00002.tfrecord", shard(0, 3));
  const std::vector<std::string> all = {folder.path()};
  EXPECT_EQ(ShardExamples(all, shard_options()).size(), 3);  // only a warning
  folder.write(kShardManifest, "{}");
  EXPECT_GOLDEN(message_of<Error>([&] { ShardExamples(all, shard_options()); }));
  folder.write("examples-00001-of-00002.tfrecord", shard(3, 5));
  EXPECT_EQ(ShardExamples(all, shard_options()).size(), 5);
}

TEST(ShardExamples, AreEachSeenOnceInAnEpochOfTenRestarts) {
  const TemporaryFolder folder;
  folder.write("a.tfrecord", shard(0, 3));
  folder.write("b.tfrecord", shard(3, 90));
  folder.write("c.tfrecord", shard(90, 101));
  const LoaderOptions how{.batch_size = 3, .micro_batches = 1, .seed = 5, .workers = 2};
  const auto collator = std::make_shared<PretrainingCollator>(PaddingOptions{.pad_id = 1});
  std::vector<int64_t> unbroken;
  std::vector<int64_t> broken;
  const auto run = [&](Position position, int64_t updates, std::vector<int64_t>& seen) {
    // A new process: everything is opened again.
    const auto data =
        std::make_shared<const ShardExamples>(std::vector{folder / "*.tfrecord"}, shard_options());
    Loader loader(data, collator, how);
    for (int64_t i = 0; i < updates && position.epoch == 0; ++i) {
      for (const Batch& batch : loader.take(position)) {
        seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
      }
      position = loader.after(position);
    }
    return position;
  };
  run({}, 1000, unbroken);
  Position position;
  for (const int64_t updates : {1, 1, 5, 3, 2, 7, 1, 4, 3, 1000}) {
    position = run(position, updates, broken);
  }
  EXPECT_EQ(position, (Position{.epoch = 1, .sample = 0}));
  EXPECT_EQ(broken, unbroken);
  std::map<int64_t, int> counts;
  for (const int64_t sample : broken) ++counts[sample];
  EXPECT_EQ(counts.size(), 101U);
  for (const auto& [sample, count] : counts) EXPECT_EQ(count, 1) << sample;
  // The data's beginning does not come first: the first tenth contains samples of the last third.
  EXPECT_TRUE(std::any_of(broken.begin(), broken.begin() + 10, [](int64_t i) { return i > 67; }));
}

TEST(ShardExamples, AreKnownByTheirContentNotTheirNames) {
  const TemporaryFolder folder;
  folder.write("a.tfrecord", shard(0, 4));
  folder.write("b.tfrecord", shard(4, 6));
  std::filesystem::create_directories(folder / "other");
  folder.write("other/x.tfrecord", shard(0, 4));
  folder.write("other/y.tfrecord", shard(4, 6));
  folder.write("changed.tfrecord", shard(4, 5) + shard(6, 7));
  const auto fingerprint = [&](const std::vector<std::string>& files) {
    return ShardExamples(files, shard_options()).fingerprint();
  };
  const std::string here = fingerprint({folder / "a.tfrecord", folder / "b.tfrecord"});
  EXPECT_EQ(fingerprint({folder / "other/*.tfrecord"}), here);
  EXPECT_NE(fingerprint({folder / "b.tfrecord", folder / "a.tfrecord"}), here);
  EXPECT_NE(fingerprint({folder / "a.tfrecord", folder / "changed.tfrecord"}), here);
  EXPECT_NE(fingerprint({folder / "a.tfrecord"}), here);
}

// Changes the features of a record, and returns the error.
std::string fault_of(const std::function<void(TfExample&)>& change) {
  TfExample features = decode_tf_example(encode_example(numbered(1), kLayout), "");
  change(features);
  try {
    static_cast<void>(decode_example(encode_tf_example(features), "a.tfrecord: record 7 at byte 99",
                                     shard_options()));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_GOLDEN(error.what());
    return error.what();
  }
  return "";
}

TEST(ShardRecord, NamesTheFeatureThatCannotBeUsed) {
  using Numbers = std::vector<int64_t>;
  using Floats = std::vector<float>;
  const auto set = [](const char* name, auto value) {
    return fault_of([&](TfExample& features) { features[name] = value; });
  };
  EXPECT_EQ(fault_of([](TfExample&) {}), "");
  for (const char* name : {"input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids",
                           "masked_lm_weights", "next_sentence_labels"}) {
    EXPECT_GOLDEN(fault_of([&](TfExample& features) { features.erase(name); }));
  }
  EXPECT_GOLDEN(set("input_ids", Floats(12)));
  EXPECT_GOLDEN(set("masked_lm_weights", Numbers{1, 0, 0}));
  EXPECT_GOLDEN(set("input_ids", Numbers(12, 1)));
  EXPECT_THAT(set("input_ids", Numbers(12, 200)), HasSubstr("holds 200"));
  EXPECT_THAT(set("input_ids", Numbers(12, -5)), HasSubstr("holds -5"));
  EXPECT_THAT(set("segment_ids", Numbers(12, 2)), HasSubstr("holds 2"));
  EXPECT_THAT(set("segment_ids", Numbers(11, 0)), HasSubstr("11 numbers"));
  EXPECT_THAT(set("masked_lm_positions", Numbers{6, 0, 0}), HasSubstr("holds 6"));
  EXPECT_THAT(set("masked_lm_positions", Numbers{-1, 0, 0}), HasSubstr("holds -1"));
  EXPECT_GOLDEN(set("masked_lm_positions", Numbers{1}));
  EXPECT_THAT(set("masked_lm_ids", Numbers{1 << 20, 0, 0}), HasSubstr("holds 1048576"));
  EXPECT_GOLDEN(set("masked_lm_weights", Floats{0.5F, 0, 0}));
  EXPECT_GOLDEN(set("masked_lm_weights", Floats{1, 1, 1}));
  EXPECT_THAT(set("next_sentence_labels", Numbers{2}), HasSubstr("holds 2"));
  EXPECT_GOLDEN(set("next_sentence_labels", Numbers{}));
  EXPECT_GOLDEN(fault_of([](TfExample& features) {
    features["input_ids"] = Numbers(13, 7);
    features["segment_ids"] = Numbers(13, 0);
  }));
}

TEST(ShardRecord, IsFilledUpAndTakenBack) {
  PretrainingExample plain = numbered(1);
  plain.next_sentence_label = kIgnoredLabel;
  ShardOptions how = shard_options();
  how.next_sentence = false;
  EXPECT_EQ(decode_example(encode_example(plain, kLayout), "a", how), plain);
  const TfExample features = decode_tf_example(encode_example(plain, kLayout), "a");
  EXPECT_EQ(std::get<std::vector<int64_t>>(features.at("input_ids")).size(), 12U);
  EXPECT_EQ(std::get<std::vector<float>>(features.at("masked_lm_weights")),
            (std::vector<float>{1, 0, 0}));
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename()] = testing::file_content(entry.path());
  }
  return files;
}

ShardWriterOptions writer(const std::string& folder, int64_t threads = 1) {
  return {.folder = folder, .shards = 4, .threads = threads, .layout = kLayout, .seed = 3};
}

TEST(ShardWriter, WritesTheSameBytesOnAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const NumberedExamples data(103);
  FileSystem& files = FileSystem::local();
  EXPECT_EQ(write_shards(files, data, writer(folder / "one")).written, 4);
  static_cast<void>(write_shards(files, data, writer(folder / "three", 3)));
  EXPECT_EQ(contents(folder / "one"), contents(folder / "three"));
  EXPECT_EQ(contents(folder / "one").size(), 5U);  // including prepare.json

  const ShardExamples read({folder / "one/*.tfrecord"}, shard_options());
  std::vector<int> seen(103, 0);
  for (int64_t i = 0; i < read.size(); ++i) {
    const PretrainingExample example = read.example({.index = i, .epoch = 0});
    const int64_t number = example.masked_lm_ids.front() - 10;
    EXPECT_EQ(example, numbered(number));
    ++seen[static_cast<size_t>(number)];
  }
  EXPECT_EQ(seen, std::vector<int>(103, 1));
}

TEST(ShardWriter, GoesOnWhereItWasStopped) {
  const TemporaryFolder folder;
  FileSystem& files = FileSystem::local();
  NumberedExamples data(103);
  static_cast<void>(write_shards(files, data, writer(folder / "whole")));
  int left = 60;
  data.before_each = [&left] {
    if (--left == 0) throw Error(ErrorKind::kIo, "no space left on the disk");
  };
  EXPECT_THROW(static_cast<void>(write_shards(files, data, writer(folder / "cut"))), Error);
  EXPECT_EQ(contents(folder / "cut").size(), 3U);  // two shards and prepare.json, no partial file
  std::ofstream(folder / ("cut/" + shard_name(2, 4) + ".unfinished")) << "left by a kill";
  data.before_each = {};
  const WrittenShards rest = write_shards(files, data, writer(folder / "cut"));
  EXPECT_EQ(rest.kept, 2);
  EXPECT_EQ(rest.written, 2);
  EXPECT_EQ(contents(folder / "cut"), contents(folder / "whole"));
  EXPECT_EQ(write_shards(files, data, writer(folder / "cut")).kept, 4);
}

TEST(ShardWriter, LeavesNothingHalfWrittenWhereAStopIsAskedFor) {
  const TemporaryFolder folder;
  NumberedExamples data(103);
  int left = 40;
  data.before_each = [&left] {
    if (--left == 0) interrupt::request(15);
  };
  EXPECT_THROW(
      static_cast<void>(write_shards(FileSystem::local(), data, writer(folder / "cut", 2))),
      Interrupted);
  interrupt::reset();
  for (const auto& [name, content] : contents(folder / "cut")) {
    EXPECT_FALSE(name.ends_with(".unfinished")) << name;
  }
  data.before_each = {};
  static_cast<void>(write_shards(FileSystem::local(), data, writer(folder / "cut")));
  static_cast<void>(write_shards(FileSystem::local(), data, writer(folder / "whole")));
  EXPECT_EQ(contents(folder / "cut"), contents(folder / "whole"));
}

TEST(ShardWriter, WritesDamagedShardsAnewAndLeavesOthersAlone) {
  const TemporaryFolder folder;
  FileSystem& files = FileSystem::local();
  const NumberedExamples data(103);
  static_cast<void>(write_shards(files, data, writer(folder / "a")));
  const auto before = contents(folder / "a");
  std::filesystem::resize_file(folder / ("a/" + shard_name(1, 4)), 100);
  EXPECT_EQ(write_shards(files, data, writer(folder / "a")).written, 1);
  EXPECT_EQ(contents(folder / "a"), before);
  std::fstream shard_file(folder / ("a/" + shard_name(2, 4)), std::ios::in | std::ios::out);
  shard_file.seekp(50);
  shard_file.put('x');
  shard_file.close();
  EXPECT_EQ(write_shards(files, data, writer(folder / "a")).written, 1);
  EXPECT_EQ(contents(folder / "a"), before);

  const auto refused = [&](const PretrainingDataset& other, const ShardWriterOptions& how) {
    try {
      static_cast<void>(write_shards(files, other, how));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_GOLDEN(refused(NumberedExamples(104), writer(folder / "a")));
  ShardWriterOptions how = writer(folder / "a");
  how.shards = 5;
  EXPECT_GOLDEN(refused(data, how));
  std::filesystem::create_directories(folder / "b");
  folder.write("b/mine.tfrecord", shard(0, 1));
  EXPECT_GOLDEN(refused(data, writer(folder / "b")));
  EXPECT_EQ(contents(folder / "a"), before);
}

}  // namespace
}  // namespace finetune::testing
