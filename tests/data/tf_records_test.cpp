// SPDX-License-Identifier: MIT
// Rows of TFRecord files. tests/parity/test_tf_records.py compares trainings on them with those on
// JSON lines; tf_record_test.cpp tests the format itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/crc32c.h"
#include "finetune/base/error.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/labels.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/data/rows.h"
#include "finetune/data/text_dataset.h"
#include "finetune/data/tf_example.h"
#include "finetune/data/tf_record.h"
#include "support/golden.h"
#include "support/packing.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::gzip;
using testing::message_of;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using testing::zstandard;

using Texts = std::vector<std::string>;
using Integers = std::vector<int64_t>;

std::string record_of(const TfExample& example) { return tf_record(encode_tf_example(example)); }

// Makes rows of about 300 bytes: {"id": i, "text": ...}.
std::string records(int64_t count) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    bytes += record_of({{"id", Integers{i}}, {"text", Texts{std::string(280, 'a') + "ĉ"}}});
  }
  return bytes;
}

std::vector<std::string> typed_rows_of(const std::string& path, const RowOptions& options = {}) {
  std::vector<std::string> rows;
  visit_rows({path}, options, [&](const DataRow& row) {
    EXPECT_TRUE(row.typed);
    EXPECT_TRUE(row.bare_lists);
    rows.push_back(row.position.substr(row.position.find_last_of('/') + 1) + " " +
                   row.columns.dump());
    return true;
  });
  return rows;
}

std::string record_error_of(const std::string& path) {
  const std::string message = message_of<Error>([&] { static_cast<void>(typed_rows_of(path)); });
  return message.substr(message.find_last_of('/') + 1);
}

TEST(TfRecords, AreRowsWithTheirNumbers) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.tfrecord", record_of({{"text", Texts{"a"}}}) +
                                     record_of({{"b", Integers{1, 2}}}) + tf_record(""));
  EXPECT_THAT(typed_rows_of(path),
              ElementsAre(R"(a.tfrecord, row 1 {"text":"a"})", R"(a.tfrecord, row 2 {"b":[1,2]})",
                          "a.tfrecord, row 3 {}"));
  EXPECT_EQ(count_rows({path}, "train_file"), 3);
}

TEST(TfRecords, AreReadOfPackedFilesToo) {
  const TemporaryFolder folder;
  const std::string bytes = records(9000);  // more than the buffers can contain
  RowOptions options;
  options.rows = {.begin = 8998, .end = 9000};
  const std::string text = ",\"text\":\"" + std::string(280, 'a') + "ĉ\"}";
  for (const std::string& path :
       {folder.write("a.tfrecord", bytes), folder.write("a.tfrecords.gz", gzip(bytes)),
        folder.write("a.tfrecord-00000-of-00001.zst", zstandard(bytes))}) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    EXPECT_THAT(typed_rows_of(path, options), ElementsAre(name + ", row 8999 {\"id\":8998" + text,
                                                          name + ", row 9000 {\"id\":8999" + text));
    EXPECT_EQ(count_rows({path}, "train_file"), 9000) << path;
  }
}

TEST(TfRecords, NameTheRecordThatIsDamagedWhateverByteIsFlippedOrMissing) {
  const TemporaryFolder folder;
  const std::string first = record_of({{"text", Texts{"a"}}});
  const std::string whole = first + record_of({{"text", Texts{"number two"}}});
  const std::string second = "a.tfrecord: record 2 at byte " + std::to_string(first.size());
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string flipped = whole;
    flipped[byte] = static_cast<char>(flipped[byte] ^ 0x10);
    EXPECT_GOLDEN(record_error_of(folder.write("a.tfrecord", flipped))) << byte;
    if (byte <= first.size()) continue;
    EXPECT_THAT(record_error_of(folder.write("a.tfrecord", whole.substr(0, byte))),
                StartsWith(second + " "))
        << byte;
  }
}

TEST(TfRecords, SayWhatIsWrongWithAPackedFile) {
  const TemporaryFolder folder;
  const std::string packed = gzip(records(1000));
  EXPECT_GOLDEN(
      record_error_of(folder.write("a.tfrecord.gz", packed.substr(0, packed.size() / 2))));
  EXPECT_GOLDEN(record_error_of(folder.write("b.tfrecord.gz", gzip(records(9) + "more"))));
  EXPECT_GOLDEN(
      record_error_of(folder.write("c.tfrecord.zst", zstandard(records(9).substr(0, 1100)))));
}

// The length says 64 MiB, but there are only a few bytes: memory grows as they are read.
TEST(TfRecords, BelieveNoLengthBeforeTheBytesAreThere) {
  const TemporaryFolder folder;
  const auto with_length = [](uint64_t length) {
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((length >> (8 * i)) & 0xff);
    const uint32_t checksum = masked_crc32c(bytes);
    for (size_t i = 0; i < 4; ++i) bytes += static_cast<char>((checksum >> (8 * i)) & 0xff);
    return bytes + "data";
  };
  EXPECT_GOLDEN(record_error_of(folder.write("a.tfrecord", with_length(TfRecordFile::kMaxRecord))));
  EXPECT_GOLDEN(record_error_of(folder.write("b.tfrecord", with_length(UINT64_MAX))));
}

TEST(TfRecords, NameTheRowWhoseFeatureIsMissingOrNoExample) {
  const TemporaryFolder folder;
  const testing::ByteTokenizer tokenizer;
  TextOptions options;
  options.line_by_line = true;
  options.max_seq_length = 16;
  const auto error = [&](const std::string& last) {
    const std::string path = folder.write("a.tfrecord", records(2500) + last);
    return message_of<Error>(
        [&] { static_cast<void>(build_text_dataset({path}, tokenizer, options)); });
  };
  EXPECT_GOLDEN(error(record_of({{"id", Integers{1}}})));
  EXPECT_GOLDEN(error(tf_record("\x0a\x05")));
  EXPECT_GOLDEN(error(record_of({{"text", Texts{"a", "b"}}})));
  EXPECT_GOLDEN(error(record_of({{"text", Texts{"\xFF"}}})));
  options.replace_broken_utf8 = true;
  const std::string path = folder.write("a.tfrecord", record_of({{"text", Texts{"b\xFF"}}}));
  const auto data = build_text_dataset({path}, tokenizer, options);
  EXPECT_EQ(tokenizer.decode(data->get(0).input_ids.to_vector(), true), "b\uFFFD");
}

TEST(TfRecords, HoldIdsOfWhichOneMayStandAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tfrecord", record_of({{"input_ids", Integers{5, 6}}}) +
                                                          record_of({{"input_ids", Integers{7}}}));
  TextOptions options;
  options.line_by_line = true;
  const auto data = build_text_dataset({path}, testing::ByteTokenizer(), options);
  EXPECT_THAT(data->get(1).input_ids.to_vector(), ElementsAre(7));
}

// Other tasks would treat padded and masked ids as text.
TEST(TfRecords, OfPretrainingAreRefusedByOtherTasks) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.tfrecord",
      record_of({{"input_ids", Integers{5, 4, 1}}, {"masked_lm_positions", Integers{1}}}));
  EXPECT_GOLDEN(message_of<Error>(
      [&] { static_cast<void>(build_text_dataset({path}, testing::ByteTokenizer(), {})); }));
}

// A single label is a list of one if any row has several.
TEST(TfRecords, HoldOneLabelOrSeveral) {
  const TemporaryFolder folder;
  const std::string one = record_of({{"text", Texts{"a"}}, {"label", Texts{"x"}}});
  const std::string two = record_of({{"text", Texts{"a"}}, {"label", Texts{"x", "y"}}});
  const std::string other = record_of({{"text", Texts{"a"}}, {"label", Texts{"y"}}});
  const auto survey = [&](const std::string& bytes) {
    return survey_labels({folder.write("a.tfrecord", bytes)}, {}, {}, {});
  };
  EXPECT_EQ(survey(one + other).problem, ProblemType::kSingleLabel);
  for (const std::string& bytes : {one + two, two + one}) {
    const LabelSurvey found = survey(bytes);
    EXPECT_EQ(found.problem, ProblemType::kMultiLabel);
    EXPECT_THAT(found.labels.names(), ElementsAre("x", "y"));
  }
  const std::string path = folder.write("a.tfrecord", one + other);
  EXPECT_EQ(survey_labels({path}, {}, {}, ProblemType::kMultiLabel).outputs, 2);
}

TEST(TfRecords, HoldAnswersAsTensorFlowDatasetsLaysThemOut) {
  const TemporaryFolder folder;
  const auto asked = [](TfExample more) {
    more.insert({{"context", Texts{"a b c"}}, {"question", Texts{"which?"}}});
    return record_of(more);
  };
  const std::string path = folder.write(
      "a.tfrecord", asked({{"answers/text", Texts{"b"}}, {"answers/answer_start", Integers{2}}}) +
                        asked({{"answers/text", Texts{}},
                               {"answers/answer_start", Integers{}},
                               {"is_impossible", Integers{1}}}));
  QuestionAnsweringOptions options;
  options.max_seq_length = 32;
  options.without_answer = true;
  options.keep_questions = true;
  const auto data = build_question_answering_dataset({path}, testing::ByteTokenizer(), options);
  ASSERT_EQ(data->questions().size(), 2U);
  EXPECT_THAT(data->questions()[0].answers, ElementsAre("b"));
  EXPECT_THAT(data->questions()[1].answers, ElementsAre());
}

}  // namespace
}  // namespace finetune
