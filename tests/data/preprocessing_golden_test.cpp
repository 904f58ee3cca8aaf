// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "finetune/base/json.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/multiple_choice_dataset.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/data/token_classification_dataset.h"
#include "finetune/tokenizer/tokenizer.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Forwards to a tokenizer, but pads on the left.
class LeftPadded final : public Tokenizer {
 public:
  explicit LeftPadded(const Tokenizer& inner) : inner_(inner) {}
  using Tokenizer::num_special_tokens_to_add;
  [[nodiscard]] Sides sides() const override { return {.pad_left = true, .truncate_left = false}; }

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    return inner_.encode(text);
  }
  [[nodiscard]] Tokens encode_with_literals(std::string_view text,
                                            std::span<const TextRange> /*literal*/) const override {
    return inner_.encode_with_ranges(text);
  }
  [[nodiscard]] std::vector<int32_t> encode_word(std::string_view word) const override {
    return inner_.encode_word(word);
  }
  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const override {
    return inner_.combine(first, second);
  }
  [[nodiscard]] int64_t num_special_tokens_to_add(bool pair) const override {
    return inner_.num_special_tokens_to_add(pair);
  }
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip) const override {
    return inner_.decode(ids, skip);
  }
  [[nodiscard]] int64_t size() const override { return inner_.size(); }
  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override {
    return inner_.token_to_id(token);
  }
  [[nodiscard]] std::string id_to_token(int32_t id) const override {
    return inner_.id_to_token(id);
  }
  [[nodiscard]] bool is_special(int32_t id) const override { return inner_.is_special(id); }
  [[nodiscard]] const SpecialTokens& special_tokens() const override {
    return inner_.special_tokens();
  }
  [[nodiscard]] bool continues_word(int32_t id) const override { return inner_.continues_word(id); }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> files() const override {
    return inner_.files();
  }

 private:
  const Tokenizer& inner_;
};

// Goldens that make_goldens.py wrote with transformers 5.23.0 and tokenizers 0.23.3.
class Preprocessing : public ::testing::Test {
 protected:
  static std::string path(const std::string& name) {
    return source_dir() + "/tests/fixtures/preprocessing/" + name;
  }

  // Calls `check` with every case of `task` and its tokenizer.
  template <class Check>
  void for_each_case(const std::string& task, Check check) {
    const Json goldens = read_json_file(path("goldens.json"));
    int cases = 0;
    for (const Json& golden : goldens) {
      if (golden["task"] != task) continue;
      ++cases;
      SCOPED_TRACE(task + " " + golden["tokenizer"].get<std::string>() + " " +
                   golden["length"].dump());
      const auto tokenizer = load_tokenizer(source_dir() + "/tests/fixtures/" +
                                            golden["tokenizer"].get<std::string>());
      check(golden, *tokenizer);
    }
    EXPECT_GE(cases, 2);
  }

  static void expect_sequence(const Example& example, const Json& sample, size_t number) {
    EXPECT_EQ(std::vector<int64_t>(example.input_ids.begin(), example.input_ids.end()),
              sample["ids"].get<std::vector<int64_t>>())
        << number;
    std::vector<int64_t> types(example.token_type_ids.begin(), example.token_type_ids.end());
    if (std::ranges::all_of(types, [](int64_t type) { return type == 0; })) types.clear();
    EXPECT_EQ(types, sample.value("types", std::vector<int64_t>())) << number;
  }

  static void set(SampleOptions& options, const Json& golden) {
    options.max_seq_length = golden["length"];
    options.threads = 2;
  }
};

TEST_F(Preprocessing, EqualsRunGlueForPairsAndTheGuessedColumns) {
  for_each_case("pairs", [&](const Json& golden, const Tokenizer& tokenizer) {
    ClassificationOptions options;
    set(options, golden);
    options.labels = survey_labels({path("pairs.jsonl")}, {}, {}, {}).labels;
    const auto data = build_classification_dataset({path("pairs.jsonl")}, tokenizer, options);
    ASSERT_EQ(data->size(), static_cast<int64_t>(golden["samples"].size()));
    for (int64_t i = 0; i < data->size(); ++i) {
      const Json& sample = golden["samples"][static_cast<size_t>(i)];
      expect_sequence(data->get(i), sample, static_cast<size_t>(i));
      EXPECT_EQ(*data->get(i).label, sample["label"].get<int64_t>());
    }
  });
}

TEST_F(Preprocessing, EqualsRunGlueForSingleTexts) {
  for_each_case("single", [&](const Json& golden, const Tokenizer& tokenizer) {
    ClassificationOptions options;
    set(options, golden);
    options.text_column = "sentence2";
    options.labels = survey_labels({path("pairs.jsonl")}, {}, {}, {}).labels;
    const auto data = build_classification_dataset({path("pairs.jsonl")}, tokenizer, options);
    for (int64_t i = 0; i < data->size(); ++i) {
      const auto number = static_cast<size_t>(i);
      expect_sequence(data->get(i), golden["samples"][number], number);
    }
  });
}

TEST_F(Preprocessing, EqualsRunSwag) {
  for_each_case("swag", [&](const Json& golden, const Tokenizer& tokenizer) {
    MultipleChoiceOptions options;
    set(options, golden);
    const auto data = build_multiple_choice_dataset({path("swag.csv")}, tokenizer, options);
    ASSERT_EQ(data->choices(), 4);
    ASSERT_EQ(data->size() * 4, static_cast<int64_t>(golden["samples"].size()));
    for (int64_t i = 0; i < data->size(); ++i) {
      for (int64_t choice = 0; choice < 4; ++choice) {
        const auto number = static_cast<size_t>(i * 4 + choice);
        const Example example = data->get(i, choice);
        expect_sequence(example, golden["samples"][number], number);
        EXPECT_EQ(*example.label, golden["samples"][number]["label"].get<int64_t>());
      }
    }
  });
}

TEST_F(Preprocessing, EqualsRunNer) {
  for_each_case("ner", [&](const Json& golden, const Tokenizer& tokenizer) {
    TokenClassificationOptions options;
    set(options, golden);
    options.label_all_tokens = golden["label_all_tokens"];
    options.labels = survey_word_labels({path("ner.json")}, {}, {}, {});
    const auto data = build_token_classification_dataset({path("ner.json")}, tokenizer, options);
    ASSERT_EQ(data->size(), static_cast<int64_t>(golden["samples"].size()));
    for (int64_t i = 0; i < data->size(); ++i) {
      const auto number = static_cast<size_t>(i);
      const Json& sample = golden["samples"][number];
      const Example example = data->get(i);
      expect_sequence(example, sample, number);
      EXPECT_EQ(std::vector<int64_t>(example.labels.begin(), example.labels.end()),
                sample["labels"].get<std::vector<int64_t>>());
      const auto words = data->words(i);
      EXPECT_EQ(std::vector<int64_t>(words.begin(), words.end()),
                sample["words"].get<std::vector<int64_t>>());
    }
  });
}

TEST_F(Preprocessing, EqualsRunQa) {
  for_each_case("squad", [&](const Json& golden, const Tokenizer& loaded) {
    const LeftPadded left(loaded);
    const bool on_the_left = golden["left"];
    const Tokenizer& tokenizer = on_the_left ? static_cast<const Tokenizer&>(left) : loaded;
    QuestionAnsweringOptions options;
    set(options, golden);
    options.doc_stride = golden["stride"];
    options.without_answer = true;
    options.keep_questions = true;
    const auto data = build_question_answering_dataset({path("squad.json")}, tokenizer, options);
    ASSERT_EQ(data->size(), static_cast<int64_t>(golden["samples"].size()));
    for (int64_t i = 0; i < data->size(); ++i) {
      const auto number = static_cast<size_t>(i);
      const Json& sample = golden["samples"][number];
      const Example example = data->get(i);
      expect_sequence(example, sample, number);
      EXPECT_EQ(example.answer->start, sample["start"].get<int64_t>()) << number;
      EXPECT_EQ(example.answer->end, sample["end"].get<int64_t>()) << number;
      EXPECT_EQ(data->question_of(i), sample["question"].get<int64_t>());
      int64_t token = sample["first"];
      EXPECT_FALSE(data->range(i, token - 1));
      for (const Json& range : sample["ranges"]) {
        const TextRange expected{.begin = range[0], .end = range[1]};
        EXPECT_EQ(data->range(i, token++), expected) << number;
      }
      if (sample["ranges"].empty()) continue;
      EXPECT_FALSE(data->range(i, token));
    }
  });
}

}  // namespace
}  // namespace finetune
