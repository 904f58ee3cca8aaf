// SPDX-License-Identifier: MIT
#include "task/generate/streamed_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/utf8.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Pieces = std::vector<std::string>;
using testing::ByteTokenizer;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

const std::string kText = "\xE6\x9C\x9D\xE3\x81\xAE\xE6\xB5\xB7 \xF0\x9F\x8C\x8A caf\xC3\xA9, sea";

Pieces pieces_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Pieces pieces;
  StreamedText text(tokenizer, [&](std::string_view piece) { pieces.emplace_back(piece); });
  for (const int32_t id : ids) text.add(id);
  text.end();
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

void expect_decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const Pieces pieces = pieces_of(tokenizer, ids);
  EXPECT_EQ(joined(pieces), tokenizer.decode(ids, true));
  EXPECT_THAT(pieces, Each(Not(HasSubstr("\xEF\xBF\xBD"))));
}

// As Llama 2's: "▁" in front of words, a token for each byte of what has none, and a decoder that
// takes the first space away.
std::shared_ptr<const Tokenizer> make_byte_fallback() {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"\xE2\x96\x81", 2}};
  const std::string characters = "abcdefghijklmnopqrstuvwxyz,";
  for (const char c : characters) vocabulary[std::string(1, c)] = vocabulary.size();
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    vocabulary[std::string{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'}] =
        vocabulary.size();
  }
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  const Json spaces = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}};
  const Json file = {{"version", "1.0"},
                     {"added_tokens", Json::array({{{"id", 1},
                                                    {"content", "<s>"},
                                                    {"single_word", false},
                                                    {"lstrip", false},
                                                    {"rstrip", false},
                                                    {"normalized", false},
                                                    {"special", true}}})},
                     {"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, spaces}}}},
                     {"pre_tokenizer", nullptr},
                     {"post_processor", nullptr},
                     {"decoder",
                      {{"type", "Sequence"},
                       {"decoders",
                        {replace,
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", "<unk>"},
                       {"fuse_unk", true},
                       {"byte_fallback", true},
                       {"vocab", vocabulary},
                       {"merges", Json::array()}}}};
  const TemporaryFolder folder;
  folder.write("tokenizer.json", file.dump());
  return load_tokenizer(folder.path());
}

TEST(StreamedText, IsTheDecodedTextInCompleteCharacters) {
  const auto lighthouse = load_tokenizer(source_dir() + "/tests/fixtures/tokenizers/lighthouse");
  expect_decoded(*lighthouse, lighthouse->encode(kText));
  const auto fallback = make_byte_fallback();
  const std::vector<int32_t> ids = fallback->encode(kText);
  expect_decoded(*fallback, ids);
  EXPECT_EQ(joined(pieces_of(*fallback, ids)), kText);
}

TEST(StreamedText, KeepsSpacesAfterSpecialTokens) {
  const auto fallback = make_byte_fallback();
  std::vector<int32_t> ids = {1, 1};
  for (const char* word : {"a", "b", ",", "c"}) {
    const std::vector<int32_t> more = fallback->encode(word);
    ids.insert(ids.end(), more.begin(), more.end());
    ids.push_back(1);
  }
  expect_decoded(*fallback, ids);
}

TEST(StreamedText, ShowsBytesWithoutACharacterAsSoonAsNothingCanCompleteThem) {
  const auto bytes = [](std::string_view text) { return ByteTokenizer().encode(text); };
  class Replacing final : public ByteTokenizer {
    [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip) const override {
      return utf8::replace_invalid(ByteTokenizer::decode(ids, skip));
    }
  };
  const std::string unknown = "\xEF\xBF\xBD";
  EXPECT_THAT(pieces_of(Replacing(), bytes("a\xE6\x9C"
                                           "b\xC3")),
              ElementsAre("a", unknown + "b", unknown));
  EXPECT_THAT(pieces_of(Replacing(), bytes("\xFF\xFE\xE6\x9C\x9D")),
              ElementsAre(unknown + unknown + "\xE6\x9C\x9D"));
}

TEST(StreamedText, DecodesAFewTokensForEach) {
  class Counting final : public ByteTokenizer {
   public:
    [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip) const override {
      decoded_ += ids.size();
      return utf8::replace_invalid(ByteTokenizer::decode(ids, skip));
    }
    mutable size_t decoded_ = 0;
  };
  std::string text;
  while (text.size() < 20'000) text += kText;
  const Counting tokenizer;
  EXPECT_EQ(joined(pieces_of(tokenizer, tokenizer.encode(text))), text);
  EXPECT_LE(tokenizer.decoded_, 8 * text.size());
}

TEST(StreamedText, DecodesNothingForNobody) {
  const ByteTokenizer tokenizer;
  StreamedText text(tokenizer, nullptr);
  text.add(ByteTokenizer::kFirstByte + 'a');
  text.end();
}

}  // namespace
}  // namespace finetune
