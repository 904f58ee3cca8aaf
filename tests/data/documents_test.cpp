// SPDX-License-Identifier: MIT
#include "finetune/data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "data/pretraining/sentences.h"
#include "finetune/base/error.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kDelimiters = {"。", "！", "？", ".", "!", "?"};

// Returns the sentences of each document.
std::vector<std::vector<std::string>> texts_of(const Documents& documents) {
  const ByteTokenizer tokenizer;
  std::vector<std::vector<std::string>> texts;
  for (int64_t i = 0; i < documents.size(); ++i) {
    auto& list = texts.emplace_back();
    const auto position = static_cast<size_t>(i);
    for (int64_t s = documents.documents[position]; s < documents.documents[position + 1]; ++s) {
      list.push_back(tokenizer.decode(documents.tokens(s, s + 1).to_vector(), false));
    }
  }
  return texts;
}

DocumentOptions document_options() {
  DocumentOptions options;
  options.sentence_delimiters = kDelimiters;
  options.longest_sentence = 100;
  return options;
}

std::vector<std::vector<std::string>> read(const std::string& name, const std::string& content,
                                           const DocumentOptions& how = document_options()) {
  const TemporaryFolder folder;
  folder.write(name, content);
  return texts_of(read_documents({folder / name}, ByteTokenizer(), how));
}

TEST(Sentences, EndWithTheirDelimitersAndWhatClosesBehind) {
  EXPECT_THAT(split_sentences("梅雨だ。雨が降る！「晴れた。」そして夜", kDelimiters),
              ElementsAre("梅雨だ。", "雨が降る！", "「晴れた。」", "そして夜"));
  EXPECT_THAT(split_sentences("It is 3.14. Really?! \"Yes.\" e.g.this", kDelimiters),
              ElementsAre("It is 3.14.", " Really?!", " \"Yes.\"", " e.g.this"));
  EXPECT_THAT(split_sentences("One. ", kDelimiters), ElementsAre("One."));
  EXPECT_THAT(split_sentences("one. two", {}), ElementsAre("one. two"));
  EXPECT_TRUE(split_sentences(" \u3000 ", kDelimiters).empty());
}

TEST(Documents, AreSeparatedByBlankLines) {
  EXPECT_THAT(read("a.txt", "\n\nA one. Two.\nthree\n \t\n\nB\n"),
              ElementsAre(ElementsAre("A one.", " Two.", "three"), ElementsAre("B")));
}

TEST(Documents, AreLinesWhereThisIsAskedFor) {
  DocumentOptions how = document_options();
  how.lines_are_documents = true;
  EXPECT_THAT(read("a.txt", "A one. Two.\n\nthree\n", how),
              ElementsAre(ElementsAre("A one.", " Two."), ElementsAre("three")));
}

TEST(Documents, AreRowsOfOtherFiles) {
  EXPECT_THAT(read("a.jsonl", "{\"text\": \"A.\\n\\nB\"}\n{\"text\": \"C\"}\n"),
              ElementsAre(ElementsAre("A.", "B"), ElementsAre("C")));
  EXPECT_THAT(read("a.csv", "id,text\n1,\"A.\nB\"\n2,C\n"),
              ElementsAre(ElementsAre("A.", "B"), ElementsAre("C")));
}

TEST(Documents, EndWhereTheirFileEnds) {
  const TemporaryFolder folder;
  folder.write("a.txt", "one\n");
  folder.write("b.txt", "two\n");
  EXPECT_EQ(read_documents({folder / "*.txt"}, ByteTokenizer(), document_options()).size(), 2);
}

TEST(Documents, CutLongSentencesInEqualParts) {
  DocumentOptions how = document_options();
  how.longest_sentence = 4;
  EXPECT_THAT(read("a.txt", "abcdefghi\n", how), ElementsAre(ElementsAre("abc", "def", "ghi")));
}

// As in transformers' tokenizer. These tokens are never masked, and ids are not assumed to be
// fixed.
TEST(Documents, TurnTheTextOfSpecialTokensIntoTheirIds) {
  const auto tokenizer = load_tokenizer(source_dir() + "/tests/fixtures/tokenizers/lighthouse");
  const int32_t separator = *tokenizer->token_to_id("</s>");
  const TemporaryFolder folder;
  folder.write("a.txt", "Rock </s> The tower is white. And </s> so on\n");
  const Documents documents = read_documents({folder / "a.txt"}, *tokenizer, document_options());
  EXPECT_EQ(std::count(documents.ids.begin(), documents.ids.end(), separator), 2);
  EXPECT_EQ(documents.sentences.size(), 3U);
  EXPECT_EQ(tokenizer->decode(documents.tokens(0, 2).to_vector(), true),
            "Rock  The tower is white. And  so on");
}

TEST(Documents, AreTheSameOnAnyNumberOfThreads) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "Line " + std::to_string(i) + (i % 7 == 0 ? "\n\n" : "\n");
  folder.write("a.txt", text);
  DocumentOptions how = document_options();
  const Documents one = read_documents({folder / "a.txt"}, ByteTokenizer(), how);
  how.threads = 3;
  const Documents three = read_documents({folder / "a.txt"}, ByteTokenizer(), how);
  EXPECT_EQ(one.ids, three.ids);
  EXPECT_EQ(one.sentences, three.sentences);
  EXPECT_EQ(one.documents, three.documents);
  EXPECT_EQ(one.size(), 716);
}

TEST(Documents, RefuseWhatHoldsNoText) {
  const auto message = [](const std::string& name, const std::string& content) {
    try {
      static_cast<void>(read(name, content));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_GOLDEN(message("a.txt", " \n\n"));
  EXPECT_THAT(message("a.txt", "fine\n\xff\n"), HasSubstr("a.txt:2"));
  EXPECT_THAT(message("a.jsonl", "{\"input_ids\": [1, 2]}\n"), HasSubstr("holds input_ids"));
}

}  // namespace
}  // namespace finetune::testing
