// SPDX-License-Identifier: MIT
#include "finetune/data/sample_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/collate.h"
#include "finetune/data/labels.h"
#include "finetune/data/loader.h"
#include "finetune/data/text_dataset.h"
#include "finetune/data/token_classification_dataset.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

// Counts the tokenised texts.
class CountingTokenizer final : public testing::ByteTokenizer {
 public:
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    ++texts;
    return ByteTokenizer::encode(text);
  }
  mutable std::atomic<int64_t> texts = 0;
};

// Makes numbered lines of different lengths and line ends, with blank lines between them.
std::string lines(int count, int from = 0) {
  std::string text;
  for (int i = from; i < from + count; ++i) {
    text += "line " + std::to_string(i) + std::string(static_cast<size_t>(i % 17), '.');
    text += i % 5 == 0 ? "\r\n" : i % 7 == 0 ? "\r" : "\n";
    if (i % 11 == 0) text += "\n";
  }
  return text;
}

std::string json_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += R"({"text": "row )" + std::to_string(i) + R"(", "label": )" + std::to_string(i % 3) +
            "}\n" + (i % 13 == 0 ? "\n" : "");
  }
  return text;
}

std::string write_gzip(const TemporaryFolder& folder, const std::string& name,
                       const std::string& content) {
  const std::string path = folder / name;
  gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
  ::gzclose(file);
  return path;
}

constexpr int64_t kBuffer = 50;

struct StreamCase {
  std::string name;
  bool line_by_line = true;
  bool labels = false;
};

class SampleStreamTest : public ::testing::TestWithParam<StreamCase> {
 protected:
  SampleStreamTest() {
    if (GetParam().name.ends_with(".gz")) {
      files_ = {write_gzip(folder_, "a.txt.gz", lines(3000)),
                write_gzip(folder_, "b.txt.gz", lines(2500, 3000))};
    } else if (GetParam().labels) {
      files_ = {folder_.write("a.jsonl", json_lines(5500))};
    } else if (GetParam().name == "csv") {
      std::string csv = "text\n";
      for (int i = 0; i < 5500; ++i) csv += "\"row, " + std::to_string(i) + "\"\n";
      files_ = {folder_.write("a.csv", csv)};
    } else {
      files_ = {folder_.write("a.txt", lines(3000)), folder_.write("b.txt", lines(2500, 3000))};
    }
  }

  [[nodiscard]] std::shared_ptr<const SequenceDataset> build(
      std::optional<StreamOptions> stream,
      std::optional<int64_t> max_samples = std::nullopt) const {
    if (GetParam().labels) {
      ClassificationOptions options;
      options.labels = LabelMap::numbered(3);
      options.max_samples = max_samples;
      options.stream = stream;
      return build_classification_dataset(files_, tokenizer_, options);
    }
    TextOptions options;
    options.line_by_line = GetParam().line_by_line;
    options.max_seq_length = 24;
    options.max_samples = max_samples;
    options.stream = stream;
    return build_text_dataset(files_, tokenizer_, options);
  }
  [[nodiscard]] std::shared_ptr<const SampleStream> stream(
      int64_t buffer = kBuffer, std::optional<int64_t> max_samples = std::nullopt) const {
    auto data = std::dynamic_pointer_cast<const SampleStream>(
        build(StreamOptions{.buffer = buffer, .longest = 24}, max_samples));
    EXPECT_NE(data, nullptr);
    return data;
  }

  // Indices and ids of samples, in the order of drawing.
  using Samples = std::vector<std::pair<int64_t, std::vector<int32_t>>>;
  static void draw(const SampleStream& stream, int64_t epoch, int64_t begin, int64_t end,
                   Samples& samples) {
    std::vector<int64_t> numbers;
    const auto drawn = stream.draw(epoch, begin, end, numbers);
    for (const int64_t number : numbers) {
      const Example example = drawn->get(number);
      samples.emplace_back(number, example.input_ids.to_vector());
      if (GetParam().labels) samples.back().second.push_back(static_cast<int32_t>(*example.label));
    }
  }
  static Samples epoch_of(const SampleStream& stream, int64_t epoch, int64_t begin = 0) {
    Samples samples;
    for (int64_t end = begin; (end = stream.reach(begin + 32)) > begin; begin = end) {
      stream.release(epoch, begin);
      draw(stream, epoch, begin, end, samples);
    }
    return samples;
  }

  TemporaryFolder folder_;
  CountingTokenizer tokenizer_;
  std::vector<std::string> files_;
};

TEST_P(SampleStreamTest, HoldsTheSamplesThatWouldBeInMemoryUnderTheirNumbers) {
  const auto memory = build(std::nullopt);
  const auto streamed = stream();
  EXPECT_FALSE(streamed->samples_per_epoch().has_value());
  for (const int64_t epoch : {0, 1}) {
    Samples samples = epoch_of(*streamed, epoch);
    ASSERT_EQ(std::ssize(samples), memory->size());
    EXPECT_EQ(streamed->samples_per_epoch(), memory->size());
    std::ranges::sort(samples);
    for (int64_t i = 0; i < memory->size(); ++i) {
      const auto& [number, ids] = samples[static_cast<size_t>(i)];
      ASSERT_EQ(number, i);
      std::vector<int32_t> expected = memory->get(i).input_ids.to_vector();
      if (GetParam().labels) expected.push_back(static_cast<int32_t>(*memory->get(i).label));
      ASSERT_EQ(ids, expected) << i;
    }
  }
}

TEST_P(SampleStreamTest, TakesTheFirstSamplesOnly) {
  const auto streamed = stream(kBuffer, 700);
  EXPECT_EQ(std::ssize(epoch_of(*streamed, 0)), 700);
  EXPECT_EQ(streamed->samples_per_epoch(), 700);
}

// From the state at any position another stream continues with equal samples, and tokenises only
// the buffer's and later samples.
TEST_P(SampleStreamTest, IsResumedAtTheExactSampleWithoutTokenisingWhatIsBehind) {
  const auto unbroken = stream();
  const std::vector<Samples> expected = {epoch_of(*unbroken, 0), epoch_of(*unbroken, 1)};
  const int64_t size = std::ssize(expected[0]);
  for (const int64_t epoch : {0, 1}) {
    for (const int64_t index : {int64_t{0}, int64_t{999}, int64_t{1000}, size / 2,
                                size - kBuffer - 1, size - kBuffer, size - 3}) {
      const auto before = stream();
      if (epoch == 1) static_cast<void>(before->reach(INT64_MAX));
      Samples ignored;
      for (int64_t begin = 0; begin < index; begin += 100) {
        draw(*before, epoch, begin, std::min(begin + 100, index), ignored);
      }
      const std::string saved = before->state(epoch, index).dump();
      const auto after = stream();
      tokenizer_.texts = 0;
      after->restore(nlohmann::ordered_json::parse(saved), epoch, index);
      // All but one in 400,000 of the buffer's samples entered it within the last 13 times its
      // size.
      EXPECT_LT(tokenizer_.texts, 13 * kBuffer + 4000) << index;
      const Samples rest = epoch_of(*after, epoch, index);
      const Samples& all = expected[static_cast<size_t>(epoch)];
      ASSERT_EQ(rest, Samples(all.begin() + index, all.end())) << epoch << " " << index;
      if (epoch == 1) continue;
      ASSERT_EQ(epoch_of(*after, 1), expected[1]) << index;
    }
  }
}

// With 0 and 3 workers, one and two processes, any micro-batch size.
TEST_P(SampleStreamTest, GivesTheSameUpdatesForAnyWorkersProcessesAndMicroBatches) {
  const auto collator =
      std::make_shared<MaskedLmCollator>(MaskedLmOptions::from(testing::ByteTokenizer()));
  if (GetParam().labels) return;  // has another collator; the samples are compared above
  using Rows = std::vector<std::pair<int64_t, std::vector<int64_t>>>;  // by index
  const auto rows_of = [](std::span<const Batch> batches, Rows& rows) {
    for (const Batch& batch : batches) {
      for (int64_t row = 0; row < batch.rows; ++row) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < batch.length; ++i) {
          const int64_t id = batch.input_ids[static_cast<size_t>(row * batch.length + i)];
          if (id != testing::ByteTokenizer::kPad) ids.push_back(id);
        }
        rows.emplace_back(batch.first_position + row, ids);
      }
    }
  };
  std::vector<Rows> expected;
  std::vector<Position> positions;
  for (const auto& [workers, parts, rows_at_a_time] :
       {std::tuple{0, 1, 16}, std::tuple{0, 1, 4}, std::tuple{3, 1, 4}, std::tuple{0, 2, 4},
        std::tuple{3, 2, 2}}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int part = 0; part < parts; ++part) {
      loaders.push_back(std::make_unique<Loader>(stream(), collator,
                                                 LoaderOptions{.batch_size = rows_at_a_time,
                                                               .micro_batches = 16 / rows_at_a_time,
                                                               .part = part,
                                                               .parts = parts,
                                                               .workers = workers}));
    }
    Position position;
    for (size_t update = 0; position.epoch < 2; ++update) {
      Rows rows;
      const Position next = loaders.front()->after(position);
      for (const auto& loader : loaders) {
        EXPECT_EQ(loader->after(position), next);
        rows_of(loader->take(position), rows);
      }
      if (workers == 0 && parts == 1 && rows_at_a_time == 16) {
        expected.push_back(rows);
        positions.push_back(position);
      } else {
        ASSERT_LT(update, expected.size());
        ASSERT_EQ(position, positions[update]);
        ASSERT_EQ(rows, expected[update]) << update << " " << workers << " " << parts;
      }
      position = next;
    }
  }
  ASSERT_GT(expected.size(), 20U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SampleStreamTest,
                         ::testing::Values(StreamCase{"lines"}, StreamCase{"blocks", false},
                                           StreamCase{"lines.gz"}, StreamCase{"blocks.gz", false},
                                           StreamCase{"csv"}, StreamCase{"labels", true, true}),
                         [](const auto& kind) {
                           std::string name = kind.param.name;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

class SampleStreams : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<const SampleStream> open(const std::string& path,
                                                         int64_t buffer = kBuffer,
                                                         const ReadingOptions& reading = {}) const {
    TextOptions options;
    options.reading = reading;
    if (!reading.header) options.text_column = "column_1";
    options.line_by_line = true;
    options.max_seq_length = 24;
    options.stream = StreamOptions{.buffer = buffer, .longest = 24};
    return std::dynamic_pointer_cast<const SampleStream>(
        build_text_dataset({path}, tokenizer_, options));
  }

  TemporaryFolder folder_;
  testing::ByteTokenizer tokenizer_;
};

TEST_F(SampleStreams, HaveTheIdentityOfFilesAndOptions) {
  const std::string path = folder_.write("a.txt", lines(3000));
  const std::string print = open(path)->fingerprint();
  EXPECT_EQ(open(path)->fingerprint(), print);
  EXPECT_EQ(open(folder_.write("moved.txt", lines(3000)))->fingerprint(), print);
  EXPECT_NE(open(path, kBuffer + 1)->fingerprint(), print);
  EXPECT_NE(open(folder_.write("other.txt", lines(3000, 1)))->fingerprint(), print);
}

// A delimiter or quoting that the file shows by itself does not change the stream's identity.
TEST_F(SampleStreams, HaveTheIdentityOfWhatIsReadWhetherItIsSetOrFound) {
  const std::string path =
      folder_.write("a.tsv", "text\tnumber\n\"a lamp\t1\nno lamp\t2\n\"three\" lamps\t3\n");
  const auto print = [&](const ReadingOptions& reading) {
    return open(path, kBuffer, reading)->fingerprint();
  };
  const std::string found = print({});
  EXPECT_EQ(print({.delimiter = '\t'}), found);
  EXPECT_EQ(print({.quoting = Quoting::kNone}), found);
  EXPECT_EQ(print({.delimiter = '\t', .quoting = Quoting::kNone}), found);
  const std::string headless = print({.header = false});
  EXPECT_NE(headless, found);
  EXPECT_EQ(print({.delimiter = '\t', .header = false}), headless);
}

TEST_F(SampleStreams, HaveTheIdentityOfTheColumnWhetherItIsSetOrFound) {
  const auto print = [&](const std::string& path, const std::optional<std::string>& column) {
    TextOptions options;
    options.line_by_line = true;
    options.max_seq_length = 24;
    options.text_column = column;
    options.stream = StreamOptions{.buffer = kBuffer, .longest = 24};
    return build_text_dataset({path}, tokenizer_, options)->fingerprint();
  };
  const std::string one = folder_.write("one.jsonl", "{\"text\": \"a\", \"n\": 1}\n");
  EXPECT_EQ(print(one, "text"), print(one, std::nullopt));
  const std::string two = folder_.write("two.jsonl", "{\"a\": \"a b\", \"b\": \"c d\"}\n");
  EXPECT_NE(print(two, "a"), print(two, "b"));
}

TEST_F(SampleStreams, ReadDelimitedTextAsTheKeysSay) {
  const std::string path = folder_.write("a.csv", "text;x,y\na lamp, lit;1\nno lamp, dark;2\n");
  const auto stream = open(path, kBuffer, {.delimiter = ';'});
  std::vector<int64_t> numbers;
  const auto drawn = stream->draw(0, 0, stream->reach(9), numbers);
  ASSERT_EQ(numbers.size(), 2U);
  EXPECT_EQ(drawn->get(0).input_ids.size(), std::string("a lamp, lit").size() + 2);
}

// The interpreter returns rows from the requested one on, and records which it was.
TEST_F(SampleStreams, BeginAParquetFileAtTheRowThatIsNeeded) {
  const std::string python =
      folder_.write("python", "#!/bin/sh\necho $5 >> " + folder_ / "asked" +
                                  "\ni=$5\necho 'C[5000]'\nwhile [ $i -lt 5000 ]; do\n"
                                  "echo \"R{\\\"text\\\": \\\"row $i\\\"}\"; i=$((i + 1))\n"
                                  "done\necho D5000\n");
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  ::setenv("FINETUNE_PYTHON", python.c_str(), 1);
  const std::string path = folder_.write("a.parquet", "PAR1");
  const auto drawn = [](const SampleStream& stream, int64_t begin, int64_t end) {
    std::vector<int64_t> numbers;
    const auto samples = stream.draw(0, begin, end, numbers);
    std::vector<std::vector<int32_t>> found;
    for (const int64_t number : numbers) {
      found.push_back(samples->get(number).input_ids.to_vector());
    }
    return found;
  };
  const auto before = open(path, 20);
  static_cast<void>(drawn(*before, 0, 3500));
  const nlohmann::ordered_json state = before->state(0, 3500);
  const auto expected = drawn(*before, 3500, 3600);
  const auto after = open(path, 20);
  after->restore(state, 0, 3500);
  EXPECT_EQ(drawn(*after, 3500, 3600), expected);
  EXPECT_EQ(drawn(*after, 4990, 5000), drawn(*before, 4990, 5000));
  std::ifstream asked(folder_ / "asked");
  std::vector<int64_t> rows;
  for (int64_t row = 0; asked >> row;) rows.push_back(row);
  EXPECT_EQ(rows.back(), 3000) << "the chunk of the buffer's samples";
  ::unsetenv("FINETUNE_PYTHON");
}

TEST_F(SampleStreams, NoticeAFileThatChangesBetweenTwoPasses) {
  const std::string path = folder_.write("a.txt", lines(3000));
  const auto stream = open(path);
  EXPECT_EQ(stream->reach(10), 10);
  static_cast<void>(folder_.write("a.txt", lines(2900) + lines(150)));
  EXPECT_GOLDEN(message_of<Error>([&] { static_cast<void>(stream->reach(INT64_MAX)); }));
}

TEST_F(SampleStreams, NameTheRowThatCannotBeUsed) {
  const std::string path = folder_.write("a.txt", lines(3000) + "\xff\n");
  const auto stream = open(path);
  EXPECT_EQ(stream->reach(1500), 1500);
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(stream->reach(INT64_MAX)); }),
              HasSubstr("a.txt:"));
  // The same error again.
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(stream->reach(INT64_MAX)); }),
              HasSubstr("a.txt:"));
}

TEST_F(SampleStreams, RefuseFilesWithoutText) {
  const std::string path = folder_.write("a.txt", "\n \n\t\n");
  EXPECT_GOLDEN(message_of<Error>([&] { static_cast<void>(open(path)); }));
}

TEST_F(SampleStreams, RefuseAStateThatIsNone) {
  const auto stream = open(folder_.write("a.txt", lines(3000)));
  for (const char* text :
       {"{}", R"({"chunks": [[0, [0]]]})", R"({"chunks": [[-1, [0,0,0,0,false]]]})",
        R"({"chunks": [[0, [7,0,0,0,false]]]})",
        R"({"chunks": [[5, [0,0,0,0,false]], [5, [0,9,9,9,false]]]})"}) {
    EXPECT_THROW(stream->restore(nlohmann::ordered_json::parse(text), 0, 10), Error) << text;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// 40 MB of text are 160 MB of ids, more than the 48 MiB that the process may still allocate.
TEST_F(SampleStreams, TakeMemoryOfTheBufferWhateverTheSizeOfTheFile) {
  const std::string path = folder_ / "large.txt";
  {
    std::ofstream file(path);
    const std::string line(399, 'a');
    for (int i = 0; i < 100'000; ++i) file << line << "\n";
  }
  const auto in_child = [&](bool streams) {
    const pid_t child = ::fork();
    if (child == 0) {
      int64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{48} << 20);
      const struct rlimit most = {.rlim_cur = limit, .rlim_max = limit};
      ::setrlimit(RLIMIT_AS, &most);
      TextOptions options;
      options.line_by_line = true;
      options.max_seq_length = 512;
      if (streams) options.stream = StreamOptions{.buffer = 100, .longest = 512};
      try {
        const auto data = build_text_dataset({path}, tokenizer_, options);
        int64_t samples = data->size();
        if (const auto* stream = dynamic_cast<const SampleStream*>(data.get())) {
          std::vector<int64_t> numbers;
          for (samples = 0; stream->reach(samples + 1) > samples;) {
            const int64_t end = stream->reach(samples + 64);
            numbers.clear();
            static_cast<void>(stream->draw(0, samples, end, numbers));
            samples = end;
          }
        }
        ::_exit(samples == 100'000 ? 0 : 1);
      } catch (const std::bad_alloc&) {
        ::_exit(2);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(in_child(true), 0);
  EXPECT_EQ(in_child(false), 2) << "the file would fit into memory";
}
#endif

}  // namespace
}  // namespace finetune
