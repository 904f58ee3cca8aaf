// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/train_sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using Type = SentencePieceOptions::Type;

std::string lighthouse() { return source_dir() + "/tests/fixtures/text/lighthouse.txt"; }

// Returns the error's message; the test fails for a wrong kind of error.
std::string refusal(ErrorKind kind, const std::vector<std::string>& files,
                    const SentencePieceOptions& options) {
  try {
    (void)train_sentencepiece(files, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

std::string refusal(const SentencePieceOptions& options) {
  return refusal(ErrorKind::kConfig, {lighthouse()}, options);
}

std::shared_ptr<const Tokenizer> load(const TemporaryFolder& folder, const std::string& model) {
  for (const auto& [name, content] : make_sentencepiece_files(model, 4096)) {
    folder.write(name, content);
  }
  return load_tokenizer(folder.path());
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  for (const int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.id_to_token(id));
  return pieces;
}

TEST(TrainSentencePiece, ReadsMoreFilesThanMayBeOpenAtOnce) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 90; ++i) {
    files.push_back(folder.write(std::to_string(i) + ".txt", "unu du tri kvar kvin ses\n"));
  }
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few = {.rlim_cur = 60, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string refused = refusal(ErrorKind::kData, files, {.vocab_size = 20});
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(refused, "nothing was thrown");
}

class TrainSentencePieceTypes : public ::testing::TestWithParam<Type> {};

TEST_P(TrainSentencePieceTypes, FindsSymbolsAndSpecialTokensInATextByName) {
  const TemporaryFolder folder;
  const SentencePieceOptions options{.type = GetParam(),
                                     .vocab_size = 300,
                                     .user_defined_symbols = {"_NEW_", "_NEW_LINE_", "<+>"}};
  const auto tokenizer = load(folder, train_sentencepiece({lighthouse()}, options).model);
  EXPECT_EQ(tokenizer->size(), 300);
  EXPECT_EQ(tokenizer->special_tokens().mask->text, "[MASK]");
  EXPECT_EQ(tokenizer->special_tokens().pad->id, 0);
  const std::vector<std::string> expected = {"▁", "_NEW_LINE_", "_NEW_", "[SEP]", "▁the", "<+>"};
  EXPECT_EQ(pieces(*tokenizer, "_NEW_LINE__NEW_[SEP] the<+>"), expected);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("_NEW_ the"), true), "_NEW_ the");
  const auto cls = *tokenizer->token_to_id("[CLS]");
  const auto sep = *tokenizer->token_to_id("[SEP]");
  const ModelText pair = tokenizer->combine(std::vector<int32_t>{9}, std::vector<int32_t>{8});
  EXPECT_EQ(pair.ids, (std::vector<int32_t>{cls, 9, sep, 8, sep}));
  EXPECT_EQ(pair.token_types, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
}

TEST_P(TrainSentencePieceTypes, SaysWhichSizesTheTextAllows) {
  SentencePieceOptions options{.type = GetParam(), .vocab_size = 100'000};
  const auto number = [&](const std::string& words) {
    const std::string message = refusal(options);
    EXPECT_THAT(message, HasSubstr(words));
    return std::stoll(message.substr(message.find(words) + words.size()));
  };
  options.vocab_size = number("the largest that works is ");
  EXPECT_NO_THROW((void)train_sentencepiece({lighthouse()}, options));
  ++options.vocab_size;
  EXPECT_EQ(number("the largest that works is "), options.vocab_size - 1);
  options.vocab_size = 3;
  options.vocab_size = number("the smallest that works is ");
  EXPECT_NO_THROW((void)train_sentencepiece({lighthouse()}, options));
  --options.vocab_size;
  EXPECT_EQ(number("the smallest that works is "), options.vocab_size + 1);
}

TEST_P(TrainSentencePieceTypes, IsTheSameForAnyNumberOfThreads) {
  SentencePieceOptions options{.type = GetParam(), .vocab_size = 400, .num_threads = 1};
  const std::string one = train_sentencepiece({lighthouse()}, options).model;
  options.num_threads = 3;
  EXPECT_EQ(train_sentencepiece({lighthouse()}, options).model, one);
}

TEST_P(TrainSentencePieceTypes, SpellsUnknownCharactersAsBytes) {
  const TemporaryFolder folder;
  const SentencePieceOptions options{
      .type = GetParam(), .vocab_size = 600, .byte_fallback = true, .add_dummy_prefix = false};
  const auto tokenizer = load(folder, train_sentencepiece({lighthouse()}, options).model);
  const std::vector<std::string> expected = {"<0xC3>", "<0x9F>"};
  EXPECT_EQ(pieces(*tokenizer, "ß"), expected);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the ß"), true), "the ß");
}

TEST_P(TrainSentencePieceTypes, SaysThatATextHoldsNothingToLearn) {
  const TemporaryFolder folder;
  const SentencePieceOptions options{.type = GetParam(), .vocab_size = 20};
  for (const char* content : {"", "\n\n", " \t\n \r\n"}) {
    const std::string path = folder.write("empty.txt", content);
    EXPECT_GOLDEN(refusal(ErrorKind::kData, {path}, options));
  }
}

TEST_P(TrainSentencePieceTypes, StopsWhileTheLibraryWorks) {
  SentencePieceOptions options{.type = GetParam(), .vocab_size = 400};
  bool training = false;
  options.progress = [&](const std::string& phase, int64_t, int64_t) {
    if (phase != "training") return;
    training = true;
    interrupt::request(SIGTERM);
  };
  EXPECT_THROW((void)train_sentencepiece({lighthouse()}, options), Interrupted);
  interrupt::reset();
  EXPECT_TRUE(training);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
}

INSTANTIATE_TEST_SUITE_P(Types, TrainSentencePieceTypes,
                         ::testing::Values(Type::kUnigram, Type::kBpe));

TEST(TrainSentencePiece, RefusesSymbolsThatClash) {
  const auto control = [](std::vector<std::string> symbols) {
    return refusal({.vocab_size = 300, .control_symbols = std::move(symbols)});
  };
  const auto user_defined = [](std::vector<std::string> symbols, bool bytes = false) {
    return refusal(
        {.vocab_size = 600, .user_defined_symbols = std::move(symbols), .byte_fallback = bytes});
  };
  EXPECT_THAT(control({"[CLS]", "[CLS]"}), HasSubstr("'[CLS]' clashes"));
  EXPECT_THAT(control({"<s>"}), HasSubstr("'<s>' clashes"));
  EXPECT_THAT(user_defined({"a_b", "a_b"}), HasSubstr("'a_b' clashes"));
  EXPECT_GOLDEN(user_defined({"[SEP]"}));
  EXPECT_GOLDEN(user_defined({"<unk>"}));
  EXPECT_THAT(user_defined({"<0x41>"}, true), HasSubstr("'<0x41>' clashes"));
  EXPECT_GOLDEN(user_defined({"x[SEP]"}));
  EXPECT_GOLDEN(user_defined({"a b"}));
  EXPECT_THAT(user_defined({""}), HasSubstr("empty"));
  EXPECT_GOLDEN(user_defined({"b\xFF"}));
  EXPECT_GOLDEN(user_defined({std::string("a\0b", 3)}));
  EXPECT_GOLDEN(user_defined({"①"}));
  EXPECT_GOLDEN(user_defined({std::string(513, 'x')}));
  EXPECT_GOLDEN(user_defined({std::string(500, 'x'), std::string(500, 'y'), std::string(500, 'z'),
                              std::string(500, 'w')}));
}

TEST(TrainSentencePiece, RefusesImpossibleOptions) {
  EXPECT_THAT(refusal({.vocab_size = 0}), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal({.vocab_size = 5'000'000}), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal({.character_coverage = 0.5}), HasSubstr("character_coverage"));
  EXPECT_THAT(refusal({.max_sentence_length = 9}), HasSubstr("max_sentence_length"));
  EXPECT_THAT(refusal({.input_sentence_size = -1}), HasSubstr("input_sentence_size"));
  EXPECT_THAT(refusal({.num_threads = -1}), HasSubstr("num_threads"));
  EXPECT_THAT(refusal({.normalization_rule_name = "nfd"}), HasSubstr("nmt_nfkc"));
  EXPECT_GOLDEN(refusal({.pad_id = 3}));
  EXPECT_GOLDEN(refusal({.pad_id = -1}));
  EXPECT_THAT(refusal({.unk_id = -1}), HasSubstr("unk_id"));
  EXPECT_GOLDEN(refusal(ErrorKind::kData, {"/no/such.txt"}, {}));
}

TEST(TrainSentencePiece, NamesTheLineThatIsNotUtf8) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.txt", "good\nb\xFF-\n");
  EXPECT_GOLDEN(refusal(ErrorKind::kData, {lighthouse(), path}, {.vocab_size = 300}));
}

TEST(TrainSentencePiece, LeavesOutEnormousLinesAndCountsThem) {
  const TemporaryFolder folder;
  const std::string enormous(3'000'000, 'x');
  const std::string path =
      folder.write("long.txt", "a b\n" + enormous + "\nab ▅\nabc ab\n" + enormous);
  const SentencePieceOptions options{.vocab_size = 12};
  const TrainedSentencePiece trained = train_sentencepiece({path}, options);
  EXPECT_EQ(trained.lines, 2);
  EXPECT_EQ(trained.too_long, 2);
  EXPECT_EQ(trained.first_too_long, path + ":2");
  EXPECT_EQ(trained.reserved, 1);
  const std::string only = folder.write("only.txt", enormous);
  EXPECT_GOLDEN(refusal(ErrorKind::kData, {only}, options));
}

TEST(TrainSentencePiece, TakesNulForAnUnknownCharacter) {
  const TemporaryFolder folder;
  const std::string path = folder.write("nul.txt", std::string("a\0b c\nab ab\n", 12));
  const auto tokenizer = load(folder, train_sentencepiece({path}, {.vocab_size = 12}).model);
  const auto unknown = tokenizer->special_tokens().unk->id;
  EXPECT_THAT(tokenizer->encode(std::string("a\0b", 3)), ::testing::Contains(unknown));
}

TEST(TrainSentencePiece, TakesTheSampleThatTheSeedSays) {
  SentencePieceOptions options{.vocab_size = 120, .input_sentence_size = 60, .seed = 7};
  const TrainedSentencePiece trained = train_sentencepiece({lighthouse()}, options);
  EXPECT_EQ(trained.lines, 60);
  EXPECT_GT(trained.other_lines, 200);
  EXPECT_EQ(train_sentencepiece({lighthouse()}, options).model, trained.model);
  options.seed = 8;
  EXPECT_NE(train_sentencepiece({lighthouse()}, options).model, trained.model);
}

}  // namespace
}  // namespace finetune
