// SPDX-License-Identifier: MIT
#include "finetune/data/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/documents.h"
#include "finetune/data/labels.h"
#include "finetune/data/multiple_choice_dataset.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/data/text_dataset.h"
#include "finetune/data/token_classification_dataset.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;
using testing::ByteTokenizer;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::TemporaryFolder;

// Shifts ids by `first`.
class WideTokenizer final : public testing::ByteTokenizer {
 public:
  explicit WideTokenizer(int32_t first) : first_(first) {}

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids = ByteTokenizer::encode(text);
    for (int32_t& id : ids) id += first_;
    return ids;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return {{"tokenizer.json", "wide" + std::to_string(first_)}};
  }

 private:
  int32_t first_;
};

std::string corpus(int lines, int seed = 1) {
  std::string text;
  auto state = static_cast<uint32_t>(seed);
  for (int line = 0; line < lines; ++line) {
    state = state * 1664525U + 1013904223U;
    if (state % 17 == 0) {
      text += "\n";
      continue;
    }
    for (uint32_t i = 0; i < 3 + (state >> 8) % 40; ++i) {
      text += static_cast<char>('a' + static_cast<int>((state >> (i % 20)) % 26));
    }
    text += "\n";
  }
  return text;
}

class TokenCache : public ::testing::Test {
 protected:
  TokenCache() {
    options_.line_by_line = true;
    options_.max_seq_length = 16;
    options_.cache.folder = folder_ / "cache";
    options_.cache.tokens_of_block = 3000;
  }

  [[nodiscard]] std::shared_ptr<const SequenceDataset> build(const TextOptions& options) const {
    return build_text_dataset({path_}, tokenizer_, options);
  }
  [[nodiscard]] std::shared_ptr<const SequenceDataset> uncached(TextOptions options) const {
    options.cache = {};
    return build(options);
  }

  static void expect_equal(const SequenceDataset& one, const SequenceDataset& other) {
    ASSERT_EQ(one.size(), other.size());
    EXPECT_EQ(one.fingerprint(), other.fingerprint());
    EXPECT_EQ(one.tokens(), other.tokens());
    EXPECT_EQ(one.longest(), other.longest());
    for (int64_t i = 0; i < one.size(); ++i) {
      const Example a = one.get(i);
      const Example b = other.get(i);
      ASSERT_EQ(a.input_ids.to_vector(), b.input_ids.to_vector()) << i;
      ASSERT_TRUE(std::ranges::equal(a.labels, b.labels)) << i;
      ASSERT_TRUE(std::ranges::equal(a.attention_mask, b.attention_mask)) << i;
      ASSERT_EQ(one.length(i), other.length(i)) << i;
    }
  }
  // Compares every choice and all targets of two datasets.
  static void expect_same_samples(const Dataset& one, const Dataset& other) {
    EXPECT_EQ(one.fingerprint(), other.fingerprint());
    ASSERT_EQ(one.size(), other.size());
    ASSERT_EQ(one.choices(), other.choices());
    for (int64_t i = 0; i < one.size() * one.choices(); ++i) {
      const Example a = one.get(i / one.choices(), i % one.choices());
      const Example b = other.get(i / one.choices(), i % one.choices());
      ASSERT_EQ(a.input_ids.to_vector(), b.input_ids.to_vector()) << i;
      ASSERT_TRUE(std::ranges::equal(a.labels, b.labels)) << i;
      ASSERT_TRUE(std::ranges::equal(a.token_type_ids, b.token_type_ids)) << i;
      ASSERT_TRUE(std::ranges::equal(a.values, b.values)) << i;
      ASSERT_TRUE(std::ranges::equal(a.words, b.words)) << i;
      ASSERT_EQ(a.word_count, b.word_count) << i;
      ASSERT_EQ(a.label, b.label) << i;
      ASSERT_EQ(a.answer.has_value(), b.answer.has_value()) << i;
      ASSERT_EQ(a.answer ? a.answer->start : -1, b.answer ? b.answer->start : -1) << i;
      ASSERT_EQ(a.answer ? a.answer->end : -1, b.answer ? b.answer->end : -1) << i;
    }
  }
  // Compares data that was built, read from the cache, and built without one; complete, and the
  // first samples of a range of rows.
  template <class Options, class Build>
  void expect_cached(Options options, const Build& build) const {
    for (const bool part : {false, true}) {
      if (part) {
        options.rows = {.begin = 100, .end = 1900};
        options.max_samples = 900;
      }
      options.cache = {};
      const auto expected = build({path_}, tokenizer_, options);
      options.cache = options_.cache;
      for (const char* words : {"are kept in", "tokenised before"}) {
        const std::string log =
            said([&] { expect_same_samples(*build({path_}, tokenizer_, options), *expected); });
        EXPECT_THAT(log, HasSubstr(words));
      }
    }
  }
  // Writes a row for each number.
  void write_rows(const std::function<std::string(int)>& row) {
    std::string rows;
    for (int number = 0; number < 2000; ++number) rows += row(number) + "\n";
    path_ = folder_.write("rows.jsonl", rows);
  }
  void expect_as_uncached(const TextOptions& options) const {
    expect_equal(*build(options), *uncached(options));
  }

  static std::string hash_of(const Documents& documents) {
    Hasher hasher;
    documents.hash_into(hasher);
    return hasher.hex();
  }

  // Returns the output on standard error during `action`.
  static std::string said(const std::function<void()>& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }

  // Returns the folders of tokenised data, without the records about source files.
  [[nodiscard]] std::vector<std::string> folders() const {
    std::vector<std::string> found;
    for (const auto& item : fs::directory_iterator(options_.cache.folder)) {
      if (item.path().filename() != "contents") found.push_back(item.path().string());
    }
    return found;
  }
  // Returns the folder of the only cache entry.
  [[nodiscard]] std::string entry() const {
    const std::vector<std::string> folders = this->folders();
    EXPECT_EQ(folders.size(), 1U);
    return folders.at(0);
  }
  [[nodiscard]] std::vector<std::string> blocks() const {
    std::vector<std::string> paths;
    for (const auto& item : fs::directory_iterator(entry())) {
      if (item.path().filename().string().starts_with("block-")) {
        paths.push_back(item.path().string());
      }
    }
    std::ranges::sort(paths);
    return paths;
  }
  [[nodiscard]] size_t entries() const { return folders().size(); }

  static void flip(const std::string& path, int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at, at < 0 ? std::ios::end : std::ios::beg);
    const auto position = file.tellg();
    const auto byte = static_cast<char>(file.get());
    file.seekp(position);
    file.put(static_cast<char>(byte ^ 0x10));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.write("text.txt", corpus(5000));
  TextOptions options_;
  ByteTokenizer tokenizer_;
};

TEST_F(TokenCache, HoldsWhatIsReadWithoutIt) {
  for (const bool line_by_line : {true, false}) {
    for (const int64_t threads : {1, 3}) {
      fs::remove_all(options_.cache.folder);
      options_.line_by_line = line_by_line;
      options_.threads = threads;
      expect_as_uncached(options_);
      EXPECT_GT(blocks().size(), 3U);
      EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("tokenised before"));
    }
  }
}

TEST_F(TokenCache, KeepsIdsInAsFewBytesAsTheyNeed) {
  TextOptions without = options_;
  without.cache = {};
  for (const auto& [first, bytes] : {std::pair{0, 2U}, {1 << 16, 3U}, {1 << 24, 4U}}) {
    const WideTokenizer wide(first);
    const auto made = build_text_dataset({path_}, wide, options_);
    expect_equal(*made, *build_text_dataset({path_}, wide, without));
    const TokenSpan ids = made->get(0).input_ids;
    EXPECT_EQ(ids.size_bytes(), bytes * ids.size());
  }
}

TEST_F(TokenCache, HoldsPartsOfTheRowsAndAsManySamplesAsAreAskedFor) {
  options_.rows = {.begin = 700, .end = 3100};
  expect_as_uncached(options_);
  options_.line_by_line = false;
  expect_as_uncached(options_);
  options_.max_samples = 777;
  expect_as_uncached(options_);
  options_.rows = {};
  options_.line_by_line = true;
  expect_as_uncached(options_);
  EXPECT_EQ(build(options_)->size(), 777);
}

TEST_F(TokenCache, HoldsRowsThatBringTheirIdsLabelsAndMasks) {
  std::string rows;
  for (int row = 0; row < 900; ++row) {
    rows += "{\"input_ids\": [0, " + std::to_string(row) + ", 2], \"attention_mask\": [1, 1, " +
            std::to_string(row % 2) + "], \"labels\": [-100, 7, -100]}\n";
  }
  path_ = folder_.write("rows.jsonl", rows);
  options_.cache.tokens_of_block = 600;
  expect_as_uncached(options_);
  expect_as_uncached(options_);
  EXPECT_GT(blocks().size(), 0U);
}

TEST_F(TokenCache, HoldsTextsWithALabelLabelsOrANumber) {
  write_rows([](int row) {
    return "{\"sentence1\": \"unu du " + std::to_string(row) + "\", \"sentence2\": \"tri\", " +
           "\"label\": " + std::to_string(row % 3) + ", \"score\": " + std::to_string(row) +
           ".5, \"tags\": [\"a\"" + (row % 2 == 0 ? ", \"b\"" : "") + "]}";
  });
  ClassificationOptions options;
  options.labels = LabelMap({"0", "1", "2"});
  expect_cached(options, build_classification_dataset);
  options.problem = ProblemType::kRegression;
  options.label_column = "score";
  expect_cached(options, build_classification_dataset);
  options.problem = ProblemType::kMultiLabel;
  options.labels = LabelMap({"a", "b"});
  options.label_column = "tags";
  expect_cached(options, build_classification_dataset);
}

TEST_F(TokenCache, HoldsChoices) {
  write_rows([](int row) {
    return "{\"sent1\": \"unu " + std::to_string(row) +
           "\", \"sent2\": \"du\", \"ending0\": \"a\", \"ending1\": \"bc\", \"label\": " +
           std::to_string(row % 2) + "}";
  });
  expect_cached(MultipleChoiceOptions(), build_multiple_choice_dataset);
}

TEST_F(TokenCache, HoldsLabelsOfWords) {
  write_rows([](int row) {
    return "{\"tokens\": [\"unu\", \"" + std::to_string(row) +
           "\"], \"ner_tags\": [\"O\", \"B-x\"]}";
  });
  TokenClassificationOptions options;
  options.labels = LabelMap({"O", "B-x"});
  options.max_seq_length = 7;
  expect_cached(options, build_token_classification_dataset);
  options.label_all_tokens = true;
  expect_cached(options, build_token_classification_dataset);
}

TEST_F(TokenCache, HoldsWindowsAndTheirAnswers) {
  write_rows([](int row) {
    return "{\"id\": \"" + std::to_string(row) +
           "\", \"question\": \"kio?\", \"context\": \"unu du tri kvar kvin ses\", "
           "\"answers\": {\"text\": [\"tri\"], \"answer_start\": [7]}}";
  });
  QuestionAnsweringOptions options;
  options.max_seq_length = 20;
  options.doc_stride = 2;
  expect_cached(options, build_question_answering_dataset);
}

TEST_F(TokenCache, HoldsQuestionsForEvaluation) {
  const std::string text = "ses sep ok nau dek unu du";
  write_rows([&](int row) {
    return "{" + (row % 3 == 0 ? "" : "\"id\": \"q" + std::to_string(row) + "\", ") +
           "\"question\": \"kio?\", \"context\": \"" + text.substr(0, 12 + row % 9) + "\u016d" +
           "\", \"answers\": {\"text\": [\"ses\", \"ses \"], \"answer_start\": [0, 0]}}";
  });
  QuestionAnsweringOptions options;
  options.max_seq_length = 20;
  options.doc_stride = 2;
  options.keep_questions = true;
  expect_cached(options, build_question_answering_dataset);
  const auto expected = build_question_answering_dataset({path_}, tokenizer_, options);
  fs::remove_all(options_.cache.folder);
  options.cache = options_.cache;
  const auto expect_same = [&](const char* words) {
    const std::string log = said([&] {
      const auto data = build_question_answering_dataset({path_}, tokenizer_, options);
      expect_same_samples(*data, *expected);
      ASSERT_EQ(data->questions().size(), expected->questions().size());
      for (size_t i = 0; i < data->questions().size(); ++i) {
        const Question& one = data->questions()[i];
        const Question& other = expected->questions()[i];
        ASSERT_EQ(std::tie(one.id, one.question, one.context, one.answers),
                  std::tie(other.id, other.question, other.context, other.answers));
      }
      for (int64_t i = 0; i < data->size(); ++i) {
        ASSERT_EQ(data->question_of(i), expected->question_of(i));
        for (int64_t token = 0; token < 20; ++token) {
          ASSERT_EQ(data->range(i, token), expected->range(i, token));
        }
      }
    });
    EXPECT_THAT(log, HasSubstr(words));
  };
  expect_same("are kept in");
  expect_same("tokenised before");
  flip(blocks().front(), -1000);  // inside the questions
  expect_same("is rebuilt: ");
  expect_same("tokenised before");
}

TEST_F(TokenCache, FindsTheLabelsOfFilesThatHaveNotChangedOnce) {
  write_rows([](int row) {
    return "{\"text\": \"a\", \"label\": \"l" + std::to_string(row % 7) +
           "\", \"tokens\": [\"a\"], \"tags\": [\"t" + std::to_string(row % 5) + "\"]}";
  });
  bool has_read = false;
  RowOptions rows;
  rows.progress = [&](double) { has_read = true; };
  const auto find = [&](const TokenCacheOptions& cache) {
    const LabelSurvey labels = survey_labels({path_}, rows, "label", {}, cache);
    const LabelMap words = survey_word_labels({path_}, rows, "tokens", "tags", cache);
    EXPECT_EQ(labels.outputs, labels.labels.size());
    return std::pair(labels.labels.names(), words.names());
  };
  const auto expected = find({});
  EXPECT_EQ(expected.first.size(), 7U);
  EXPECT_EQ(expected.second.size(), 5U);
  for (const bool is_known : {false, true}) {
    has_read = false;
    EXPECT_EQ(find(options_.cache), expected);
    EXPECT_NE(has_read, is_known);
  }
  EXPECT_EQ(survey_labels({path_}, rows, "label", ProblemType::kSingleLabel, options_.cache).labels,
            survey_labels({path_}, rows, "label", ProblemType::kSingleLabel).labels);
  std::ofstream(path_, std::ios::app) << "{\"label\": \"z\", \"tokens\": [], \"tags\": []}\n";
  EXPECT_EQ(find(options_.cache).first.back(), "z");
}

TEST_F(TokenCache, HoldsDocuments) {
  DocumentOptions options;
  options.longest_sentence = 12;
  for (const bool lines_are_documents : {false, true}) {
    options.lines_are_documents = lines_are_documents;
    options.cache = {};
    const Documents expected = read_documents({path_}, tokenizer_, options);
    options.cache = options_.cache;
    for (const char* words : {"are kept in", "tokenised before"}) {
      const std::string log = said([&] {
        const Documents documents = read_documents({path_}, tokenizer_, options);
        EXPECT_EQ(documents.documents, expected.documents);
        EXPECT_EQ(documents.token_count(), expected.token_count());
        EXPECT_EQ(hash_of(documents), hash_of(expected));
        EXPECT_TRUE(documents.ids.empty()) << "they stay where the cache has them";
        for (int64_t i = 0; i < expected.size(); ++i) {
          const auto position = static_cast<size_t>(i);
          const int64_t begin = expected.documents[position];
          const int64_t end = expected.documents[position + 1];
          EXPECT_EQ(documents.length(begin), expected.length(begin));
          EXPECT_EQ(documents.tokens(begin, end).to_vector(),
                    expected.tokens(begin, end).to_vector());
        }
      });
      EXPECT_THAT(log, HasSubstr(words));
    }
  }
}

TEST_F(TokenCache, IsMadeOfWhatAnotherLocationOrTimeHoldsToo) {
  static_cast<void>(build(options_));
  fs::last_write_time(path_, fs::last_write_time(path_) - std::chrono::hours(1));
  EXPECT_THAT(said([&] { static_cast<void>(build(options_)); }), HasSubstr("tokenised before"));
  const std::string moved = folder_ / "moved.txt";
  fs::rename(path_, moved);
  path_ = moved;
  EXPECT_THAT(said([&] { static_cast<void>(build(options_)); }), HasSubstr("tokenised before"));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(TokenCache, TellsOfStepsThatLastWhereFilesAreLarge) {
  std::map<std::string, StepProgress> reported;
  options_.cache.show = [&](const StepProgress& step) { reported[step.phase] = step; };
  const auto phases = [&] {
    std::string all;
    for (const auto& [phase, step] : std::exchange(reported, {})) {
      EXPECT_EQ(step.done, step.total) << phase;
      all += phase + ", ";
    }
    return all;
  };
  TextOptions stopped = options_;
  stopped.progress = [](double fraction) {
    if (fraction > 0.5) interrupt::request(SIGTERM);
  };
  EXPECT_THROW(static_cast<void>(build(stopped)), Interrupted);
  interrupt::reset();
  reported.clear();
  static_cast<void>(build(options_));  // resumes after the existing blocks
  EXPECT_EQ(phases(), "check, fingerprint, hash, look at files, ");
  static_cast<void>(build(options_));
  EXPECT_EQ(phases(), "check, look at files, ");
  fs::last_write_time(path_, fs::last_write_time(path_) - std::chrono::hours(1));
  static_cast<void>(build(options_));
  EXPECT_EQ(phases(), "check, hash, look at files, ");
}

TEST_F(TokenCache, StopsAtASignalWhileATouchedFileIsHashed) {
  static_cast<void>(build(options_));
  fs::last_write_time(path_, fs::last_write_time(path_) - std::chrono::hours(1));
  options_.cache.show = [](const StepProgress& step) {
    if (step.phase == "hash") interrupt::request(SIGTERM);
  };
  EXPECT_EQ(message_of<Interrupted>([&] { static_cast<void>(build(options_)); }),
            "hashing the files of train_file");
  interrupt::reset();
}

TEST_F(TokenCache, StopsAtASignalAmongRowsThatAreSkipped) {
  options_.cache.folder.clear();
  options_.rows.begin = 4900;
  int64_t reported = 0;
  options_.progress = [&](double fraction) {
    ++reported;
    EXPECT_LT(fraction, 0.5);
    interrupt::request(SIGTERM);
  };
  EXPECT_THROW(static_cast<void>(build(options_)), Interrupted);
  interrupt::reset();
  EXPECT_EQ(reported, 1);
}

TEST_F(TokenCache, NoticesAChangedByteThatNoSampleOfTheFileShows) {
  path_ = folder_.write("large.txt", corpus(40'000));
  static_cast<void>(build(options_));
  const auto size = static_cast<int64_t>(fs::file_size(path_));
  const auto time = fs::last_write_time(path_);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(size / 3);
  file.put('Z');
  file.close();
  fs::last_write_time(path_, time);  // as if a tool had restored the time
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("has changed since"));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(TokenCache, IsAnotherForEveryOptionTokenizerAndText) {
  static_cast<void>(build(options_));
  TextOptions other = options_;
  other.max_seq_length = 17;
  expect_as_uncached(other);
  EXPECT_EQ(entries(), 2U);
  other = options_;
  other.line_by_line = false;
  expect_as_uncached(other);
  EXPECT_EQ(entries(), 3U);
  other = options_;
  other.vocabulary_limit = 300;
  expect_as_uncached(other);
  EXPECT_EQ(entries(), 4U);
  static_cast<void>(build_text_dataset({path_}, WideTokenizer(1 << 16), options_));
  EXPECT_EQ(entries(), 5U);
  std::ofstream(path_, std::ios::app) << "one more line\n";
  expect_as_uncached(options_);
  EXPECT_EQ(entries(), 6U);
}

TEST_F(TokenCache, IsMendedWhereABlockIsDamagedCutShortOrMissing) {
  static_cast<void>(build(options_));
  const std::vector<std::string> all = blocks();
  ASSERT_GT(all.size(), 4U);
  const std::vector<std::function<void(const std::string&)>> faults = {
      [](const std::string& path) { flip(path, 100); },
      [](const std::string& path) { flip(path, -1); },
      [](const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); },
      [](const std::string& path) { fs::resize_file(path, 10); },
      [](const std::string& path) { fs::resize_file(path, 0); },
      [](const std::string& path) { fs::remove(path); },
      [&](const std::string& path) {
        fs::copy_file(all[0], path, fs::copy_options::overwrite_existing);
      }};
  for (const auto& fault : faults) {
    fault(all[2]);
    const auto before = fs::last_write_time(all[1]);
    EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("is rebuilt: "));
    EXPECT_EQ(fs::last_write_time(all[1]), before) << "whole blocks are kept";
    EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("tokenised before"));
  }
}

TEST_F(TokenCache, IsMadeAnewWhereItsManifestIsDamaged) {
  for (const int64_t at : {0, 30, 300, -40}) {
    static_cast<void>(build(options_));
    flip(entry() + "/tokens.json", at);
    EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("is rebuilt: ")) << at;
  }
}

TEST_F(TokenCache, IsMadeAnewWhereItIsAskedFor) {
  static_cast<void>(build(options_));
  options_.cache.overwrite = true;
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), Not(HasSubstr("tokenised before")));
}

// Parts of a block that are not checked when it is opened are checked before a sample is returned.
TEST_F(TokenCache, StopsAtASampleThatIsDamagedAndMendsItsBlockAtTheNextStart) {
  static_cast<void>(build(options_));
  const std::vector<std::string> all = blocks();
  flip(all[1], -100);
  options_.cache.bytes_checked_at_start = 0;
  const auto data = build(options_);
  EXPECT_EQ(data->get(0).input_ids.to_vector(), uncached(options_)->get(0).input_ids.to_vector());
  EXPECT_THAT(message_of<Error>([&] {
                for (int64_t i = 0; i < data->size(); ++i) static_cast<void>(data->get(i));
              }),
              HasSubstr("run the same command again"));
  expect_as_uncached(options_);
  EXPECT_EQ(blocks(), all);
}

// A block is truncated while it is mapped: pages after its new end must not be accessed.
TEST_F(TokenCache, StopsWhereABlockIsCutShortWhileItIsUsed) {
  path_ = folder_.write("large.txt", corpus(40'000));
  options_.cache.tokens_of_block = 10'000'000;
  static_cast<void>(build(options_));
  ASSERT_GT(fs::file_size(blocks().front()), 900'000U) << "several pieces";
  options_.cache.bytes_checked_at_start = 0;
  const auto data = build(options_);
  static_cast<void>(data->get(0));
  const auto cut = build(options_);
  fs::resize_file(blocks().front(), 20'000);
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(cut->get(cut->size() - 1)); }),
              HasSubstr("was truncated while it was in use"));
  expect_as_uncached(options_);  // rebuilt while the old one is still mapped
}

TEST_F(TokenCache, EndsWithAMessageWhereAPageThatWasLookedAtIsGone) {
  static_cast<void>(build(options_));
  EXPECT_EXIT(
      {
        options_.cache.bytes_checked_at_start = 0;
        const auto data = build(options_);
        const TokenSpan ids = data->get(0).input_ids;
        fs::resize_file(blocks().front(), 0);
        ::_exit(ids[0] >= 0 ? 0 : 2);
      },
      ::testing::ExitedWithCode(kExitFailed), "was truncated while it was in use");
}

TEST_F(TokenCache, RemovesEntriesThatNobodyHasUsedForLong) {
  const auto age = [&](const std::string& entry) {
    for (const auto& item : fs::directory_iterator(entry)) {
      fs::last_write_time(item.path(), fs::file_time_type::clock::now() - std::chrono::hours(800));
    }
  };
  static_cast<void>(build(options_));
  const std::string old = entry();
  age(old);
  const auto build_another = [&] {
    ++options_.max_seq_length;
    return said([&] { static_cast<void>(build(options_)); });
  };
  {
    TextOptions first = options_;
    const auto used = build(first);
    age(old);
    EXPECT_THAT(build_another(), Not(HasSubstr("removed ")));
    EXPECT_TRUE(fs::exists(old)) << "it is in use";
  }
  static_cast<void>(build_another());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_EQ(entries(), 2U) << "the newer ones stay";
  options_.max_seq_length -= 2;
  static_cast<void>(build(options_));
  age(old);
  static_cast<void>(build(options_));  // the use is recorded
  options_.max_seq_length += 2;
  EXPECT_THAT(build_another(), HasSubstr("of tokenised data in 4 entries"));
}

TEST_F(TokenCache, RemovesWhatElseNobodyHasUsedForLong) {
  const fs::path cache = options_.cache.folder;
  const auto count = [&] { return count_rows({path_}, "train_file", options_.cache); };
  EXPECT_GT(count(), 0);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24 * 31);
  fs::create_directories(cache / "labels");
  for (const char* name : {"/labels/", "/labels/mine-"}) {
    const std::string path = cache.string() + name + std::string(32, 'b') + ".json";
    std::ofstream(path) << "{}";
    fs::last_write_time(path, old);
  }
  std::vector<fs::path> unfinished;  // a copy, and a base that was being quantised
  for (const char* end : {".tmp-0123456789abcdef", ".partial-4026531836-77"}) {
    unfinished.push_back(cache / (std::string(32, 'a') + end));
    fs::create_directories(unfinished.back());
    const fs::path part = unfinished.back() / "part";
    std::ofstream(part.string()) << "part of a file";
    fs::last_write_time(part, old);
  }
  const std::string rows = fs::directory_iterator(cache / "rows")->path().string();
  fs::last_write_time(rows, old);
  EXPECT_GT(count(), 0);  // the use is recorded
  static_cast<void>(build(options_));
  EXPECT_TRUE(fs::exists(rows));
  for (const fs::path& folder : unfinished) EXPECT_FALSE(fs::exists(folder)) << folder;
  EXPECT_FALSE(fs::exists(cache / "labels" / (std::string(32, 'b') + ".json")));
  EXPECT_TRUE(fs::exists(cache / "labels" / ("mine-" + std::string(32, 'b') + ".json")));

  fs::last_write_time(rows, old);
  ++options_.max_seq_length;
  static_cast<void>(build(options_));
  EXPECT_FALSE(fs::exists(rows));
}

TEST_F(TokenCache, GoesOnBehindTheLastBlockAfterAKillAtAnyBlock) {
  const auto expected = uncached(options_);
  static_cast<void>(build(options_));
  const size_t all = blocks().size();
  for (size_t kept = 1; kept < all; kept += 5) {
    fs::remove_all(options_.cache.folder);
    const pid_t child = ::fork();
    if (child == 0) {
      TextOptions options = options_;
      options.progress = [&](double) {
        if (blocks().size() >= kept) ::raise(SIGKILL);
      };
      static_cast<void>(build(options));
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::string first = blocks().front();
    const auto before = fs::last_write_time(first);
    const std::string words = said([&] { expect_equal(*build(options_), *expected); });
    EXPECT_THAT(words, HasSubstr("continues after row"));
    EXPECT_EQ(fs::last_write_time(first), before);
    EXPECT_EQ(blocks().size(), all);
  }
}

TEST_F(TokenCache, GoesOnAfterASignal) {
  TextOptions options = options_;
  options.progress = [&](double fraction) {
    if (fraction > 0.5) interrupt::request(SIGTERM);
  };
  EXPECT_THROW(static_cast<void>(build(options)), Interrupted);
  interrupt::reset();
  EXPECT_GT(blocks().size(), 2U);
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("continues after row"));
}

TEST_F(TokenCache, BeginsAnewWhereTheTextChangedAfterTheInterruption) {
  path_ = folder_.write("large.txt", corpus(40'000));
  TextOptions options = options_;
  options.progress = [&](double fraction) {
    if (fraction > 0.5) interrupt::request(SIGTERM);
  };
  EXPECT_THROW(static_cast<void>(build(options)), Interrupted);
  interrupt::reset();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<int64_t>(fs::file_size(path_)) / 3);
  file.put('Z');
  file.close();
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), Not(HasSubstr("continues after row")));
}

TEST_F(TokenCache, RefusesAFileThatChangesWhileItIsRead) {
  bool done = false;
  options_.progress = [&](double) {
    if (!done) std::ofstream(path_, std::ios::app) << "one more line\n";
    done = true;
  };
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(build(options_)); }),
              HasSubstr("changed while it was read"));
  expect_as_uncached(options_);
}

TEST_F(TokenCache, RefusesAFileThatChangesWhileItIsReadWithoutACacheToo) {
  const auto grows = [&](auto options, const auto& read) {
    bool done = false;
    options.progress = [&](double) {
      if (!done) std::ofstream(path_, std::ios::app) << "one more line\n";
      done = true;
    };
    EXPECT_THAT(message_of<Error>([&] { read(options); }), HasSubstr("changed while it was read"));
    EXPECT_TRUE(done);
  };
  const auto text = [&](const TextOptions& options) { static_cast<void>(build(options)); };
  const auto documents = [&](const DocumentOptions& options) {
    static_cast<void>(read_documents({path_}, tokenizer_, options));
  };
  options_.cache.folder = folder_.write("a-file", "") + "/cache";  // cannot be used
  grows(options_, text);
  options_.cache.folder = "";
  grows(options_, text);
  DocumentOptions document_options;
  document_options.longest_sentence = 16;
  grows(document_options, documents);
  expect_equal(*build(options_), *uncached(options_));
}

TEST_F(TokenCache, IsBegunAnewByThoseWhoWaitWhereItsBuilderFails) {
  path_ = folder_.write("bad.txt", corpus(20'000) + "\xff\n");
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::string message;
      const std::string log =
          said([&] { message = message_of<Error>([&] { static_cast<void>(build(options_)); }); });
      const bool in_memory = log.find("cannot be kept") != std::string::npos;
      ::_exit(message.find("invalid UTF-8") == std::string::npos || in_memory ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(entries(), 0U);
}

TEST_F(TokenCache, IsBuiltOnceByProcessesThatStartTogether) {
  const auto expected = uncached(options_);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto data = build(options_);
      ::_exit(data->fingerprint() == expected->fingerprint() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("tokenised before"));
}

TEST_F(TokenCache, StaysInMemoryWhereTheFolderCannotBeWrittenOrTheDiskIsFull) {
  options_.cache.folder = folder_.write("a-file", "") + "/cache";
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("stay in memory"));
  options_.cache.folder = folder_ / "cache";
  const pid_t child = ::fork();
  if (child == 0) {
    // Simulates a full disk for this process only: the third write of a block fails.
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {.rlim_cur = 20'000, .rlim_max = 20'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    options_.cache.tokens_of_block = 100'000;
    const auto data = build(options_);
    ::_exit(data->fingerprint() == uncached(options_)->fingerprint() && entries() == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(TokenCache, IsAnErrorWhereItIsRequiredAndNothingCanBeKept) {
  options_.cache.folder = folder_.write("a-file", "") + "/cache";
  options_.cache.required = true;
  EXPECT_THAT(message_of<Error>([&] { static_cast<void>(build(options_)); }),
              HasSubstr("cannot be kept in cache_dir"));
}

TEST_F(TokenCache, IsReadWhereNothingMayBeWritten) {
  static_cast<void>(build(options_));
  fs::permissions(entry(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THAT(said([&] { expect_as_uncached(options_); }), HasSubstr("tokenised before"));
  fs::permissions(entry(), fs::perms::owner_all);
}

TEST_F(TokenCache, CountsTheRowsOfFilesThatHaveNotChangedOnce) {
  EXPECT_EQ(count_rows({path_}, "train_file", options_.cache), 5000);
  const std::string file = fs::directory_iterator(options_.cache.folder + "/rows")->path().string();
  const auto before = fs::last_write_time(file);
  EXPECT_EQ(count_rows({path_}, "train_file", options_.cache), 5000);
  EXPECT_EQ(fs::last_write_time(file), before) << "was not counted again";
  flip(file, 12);
  EXPECT_EQ(count_rows({path_}, "train_file", options_.cache), 5000);
  std::ofstream(path_, std::ios::app) << "one more line\n";
  EXPECT_EQ(count_rows({path_}, "train_file", options_.cache), 5001);
}

TEST_F(TokenCache, LeavesNothingBehindWhereTheTextCannotBeRead) {
  path_ = folder_.write("bad.txt", corpus(100) + "\xff\n");
  const std::string with = message_of<Error>([&] { static_cast<void>(build(options_)); });
  const std::string without = message_of<Error>([&] { static_cast<void>(uncached(options_)); });
  EXPECT_EQ(with, without);
  EXPECT_EQ(entries(), 0U);
}

}  // namespace
}  // namespace finetune
