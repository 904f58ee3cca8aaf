// SPDX-License-Identifier: MIT
#include "finetune/data/document_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/mixed_pretraining.h"
#include "support/golden.h"

namespace finetune::testing {
namespace {

constexpr int32_t kFirst = ByteTokenizer::kFirstByte;

// Makes `count` documents of sentences of several lengths. Each document has its own range of ids,
// so that tests recognise it.
Documents make_documents(int64_t count, int64_t sentences, int64_t longest) {
  Documents documents;
  for (int64_t d = 0; d < count; ++d) {
    for (int64_t s = 0; s < sentences; ++s) {
      const int64_t length = 1 + (7 * s + 3 * d) % longest;
      for (int64_t i = 0; i < length; ++i) {
        documents.ids.push_back(kFirst + static_cast<int32_t>((50 * d + 5 * s + i) % 250));
      }
      documents.sentences.push_back(static_cast<int64_t>(documents.ids.size()));
    }
    documents.documents.push_back(static_cast<int64_t>(documents.sentences.size()) - 1);
  }
  return documents;
}

ExampleOptions options(int64_t max_seq_length = 32) {
  ExampleOptions options = ExampleOptions::from(ByteTokenizer(), false);
  options.max_seq_length = max_seq_length;
  options.masking.seed = 7;
  return options;
}

// Returns the example before masking.
PretrainingExample unmasked(PretrainingExample example) {
  for (size_t i = 0; i < example.masked_lm_positions.size(); ++i) {
    example.input_ids[static_cast<size_t>(example.masked_lm_positions[i])] =
        example.masked_lm_ids[i];
  }
  return example;
}

struct Segments {
  std::vector<int32_t> first, second;
};

Segments segments_of(const PretrainingExample& masked) {
  const PretrainingExample example = unmasked(masked);
  Segments segments;
  for (size_t i = 0; i < example.input_ids.size(); ++i) {
    if (example.input_ids[i] < kFirst) continue;
    (example.segment_ids[i] == 0 ? segments.first : segments.second)
        .push_back(example.input_ids[i]);
  }
  return segments;
}

TEST(DocumentExamples, HoldEveryTokenOnceInEachRepetition) {
  for (const bool next_sentence : {true, false}) {
    ExampleOptions how = options();
    how.next_sentence = next_sentence;
    how.dupe_factor = 3;
    const Documents documents = make_documents(9, 12, how.longest_sentence());
    const DocumentExamples data(documents, how);
    std::vector<int32_t> seen;
    for (int64_t i = 0; i < data.size(); ++i) {
      const PretrainingExample example = data.example({.index = i, .epoch = 0});
      const Segments segments = segments_of(example);
      EXPECT_FALSE(segments.first.empty());
      seen.insert(seen.end(), segments.first.begin(), segments.first.end());
      if (example.next_sentence_label == PretrainingExample::kIsNext) {
        seen.insert(seen.end(), segments.second.begin(), segments.second.end());
      }
    }
    std::vector<int32_t> expected;
    for (int repetition = 0; repetition < 3; ++repetition) {
      expected.insert(expected.end(), documents.ids.begin(), documents.ids.end());
    }
    EXPECT_EQ(seen, expected);
  }
}

TEST(DocumentExamples, AreLaidOutAsBertsAre) {
  const ExampleOptions how = options();
  const DocumentExamples data(make_documents(9, 12, how.longest_sentence()), how);
  int64_t random = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const PretrainingExample example = unmasked(data.example({.index = i, .epoch = 2}));
    const auto& ids = example.input_ids;
    ASSERT_LE(ids.size(), 32U);
    ASSERT_EQ(example.segment_ids.size(), ids.size());
    EXPECT_EQ(ids.front(), ByteTokenizer::kBos);
    EXPECT_EQ(ids.back(), ByteTokenizer::kEos);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), ByteTokenizer::kEos), 2);
    const auto separator =
        static_cast<size_t>(std::find(ids.begin(), ids.end(), ByteTokenizer::kEos) - ids.begin());
    for (size_t position = 0; position < ids.size(); ++position) {
      EXPECT_EQ(example.segment_ids[position], position > separator ? 1 : 0);
    }
    random += example.next_sentence_label;
  }
  EXPECT_EQ(data.extent()->longest, 32);
  EXPECT_EQ(data.extent()->token_types, 2);
  EXPECT_GT(random, data.size() / 3);
  EXPECT_LT(random, data.size() * 4 / 5);
}

TEST(DocumentExamples, MaskAnewEachEpochAndOnceForEvaluation) {
  const ExampleOptions how = options();
  const Documents documents = make_documents(9, 12, how.longest_sentence());
  const DocumentExamples data(documents, how);
  const DocumentExamples again(documents, how);
  EXPECT_EQ(data.fingerprint(), again.fingerprint());
  int64_t different = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const PretrainingExample first = data.example({.index = i, .epoch = 0});
    const PretrainingExample second = data.example({.index = i, .epoch = 1});
    EXPECT_EQ(first, again.example({.index = i, .epoch = 0}));
    EXPECT_EQ(unmasked(first).input_ids, unmasked(second).input_ids);
    EXPECT_EQ(data.example({.index = i, .epoch = SampleKey::kEvaluation}),
              again.example({.index = i, .epoch = SampleKey::kEvaluation}));
    different += first.masked_lm_positions != second.masked_lm_positions ? 1 : 0;
  }
  EXPECT_GT(different, data.size() / 2);
}

TEST(DocumentExamples, ChooseAsManyTokensAsTheKeysSay) {
  ExampleOptions how = options(128);
  how.max_predictions = 9;
  const DocumentExamples data(make_documents(20, 40, how.longest_sentence() / 4), how);
  std::map<std::string, double> fates;
  double chosen = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    for (int64_t i = 0; i < data.size(); ++i) {
      const PretrainingExample example = data.example({.index = i, .epoch = epoch});
      const auto tokens = static_cast<double>(example.input_ids.size());
      const auto wanted = std::min<int64_t>(9, std::max<int64_t>(1, std::llround(0.15 * tokens)));
      EXPECT_EQ(std::ssize(example.masked_lm_positions), wanted);
      EXPECT_TRUE(
          std::is_sorted(example.masked_lm_positions.begin(), example.masked_lm_positions.end()));
      for (size_t k = 0; k < example.masked_lm_ids.size(); ++k) {
        EXPECT_GE(example.masked_lm_ids[k], kFirst) << "a special token was chosen";
        const int32_t now = example.input_ids[static_cast<size_t>(example.masked_lm_positions[k])];
        const bool is_mask = now == ByteTokenizer::kMask;
        ++fates[is_mask ? "mask" : now == example.masked_lm_ids[k] ? "kept" : "random"];
        ++chosen;
      }
    }
  }
  EXPECT_NEAR(fates["mask"] / chosen, 0.8, 0.02);
  EXPECT_NEAR(fates["kept"] / chosen, 0.1, 0.02);
  EXPECT_NEAR(fates["random"] / chosen, 0.1, 0.02);
}

TEST(DocumentExamples, MaskWholeWordsTogether) {
  ExampleOptions how = options(64);
  how.masking = MaskingOptions::from(ByteTokenizer(), true);
  how.masking.mlm_probability = 0.3;
  Documents documents;
  for (int d = 0; d < 4; ++d) {
    for (const int32_t id : ByteTokenizer().encode(" three words here and four more")) {
      documents.ids.push_back(id);
    }
    documents.sentences.push_back(static_cast<int64_t>(documents.ids.size()));
    documents.documents.push_back(static_cast<int64_t>(documents.sentences.size()) - 1);
  }
  const DocumentExamples data(documents, how);
  const ByteTokenizer tokenizer;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const PretrainingExample masked = data.example({.index = 1, .epoch = epoch});
    const PretrainingExample plain = unmasked(masked);
    const std::set<int32_t> positions(masked.masked_lm_positions.begin(),
                                      masked.masked_lm_positions.end());
    for (size_t i = 1; i < plain.input_ids.size(); ++i) {
      if (plain.input_ids[i] < kFirst || !tokenizer.continues_word(plain.input_ids[i])) continue;
      EXPECT_EQ(positions.contains(static_cast<int32_t>(i)),
                positions.contains(static_cast<int32_t>(i) - 1));
    }
  }
}

// Like Japanese, the text has no spaces: a sentence is one word, longer than the masking limit of
// an example.
TEST(DocumentExamples, MaskPartsOfWordsThatAreTooLong) {
  ExampleOptions how = options(64);
  how.masking = MaskingOptions::from(ByteTokenizer(), true);
  how.masking.mlm_probability = 0.15;
  Documents documents;
  for (int d = 0; d < 4; ++d) {
    for (const int32_t id : ByteTokenizer().encode("nospaceswhatsoeverinsuchalonglineoftext")) {
      documents.ids.push_back(id);
    }
    documents.sentences.push_back(static_cast<int64_t>(documents.ids.size()));
    documents.documents.push_back(static_cast<int64_t>(documents.sentences.size()) - 1);
  }
  const DocumentExamples data(documents, how);
  for (int64_t i = 0; i < data.size(); ++i) {
    const PretrainingExample masked = data.example({.index = i, .epoch = 1});
    const auto length = static_cast<double>(masked.input_ids.size());
    EXPECT_GE(static_cast<double>(masked.masked_lm_positions.size()), 0.1 * length) << i;
    EXPECT_LE(static_cast<double>(masked.masked_lm_positions.size()), 0.15 * length + 1) << i;
  }
}

TEST(DocumentExamples, AreShorterAsOftenAsAsked) {
  ExampleOptions how = options(64);
  how.next_sentence = false;
  how.short_seq_prob = 0.0;
  const Documents documents = make_documents(5, 200, 5);
  const auto short_ones = [&](double share) {
    how.short_seq_prob = share;
    const DocumentExamples data(documents, how);
    int64_t count = 0;
    for (int64_t i = 0; i < data.size(); ++i) {
      count += data.example({.index = i, .epoch = 0}).input_ids.size() < 50 ? 1 : 0;
    }
    return static_cast<double>(count) / static_cast<double>(data.size());
  };
  EXPECT_LT(short_ones(0.0), 0.1);
  EXPECT_GT(short_ones(0.9), 0.5);
}

TEST(DocumentExamples, AreMixedByWeightWithAMaskForEachTime) {
  const ExampleOptions how = options();
  const auto few = std::make_shared<const DocumentExamples>(make_documents(4, 6, 10), how);
  const auto many = std::make_shared<const DocumentExamples>(make_documents(9, 12, 10), how);
  const MixedPretraining mixed(std::make_shared<const MixedDataset>(
      std::vector<MixturePart>{{few, 2.0 * static_cast<double>(few->size())},
                               {many, static_cast<double>(many->size())}},
      "train_file"));
  ASSERT_EQ(mixed.size(), 2 * few->size() + many->size());
  int64_t others = 0;
  for (int64_t i = 0; i < few->size(); ++i) {
    const PretrainingExample first = mixed.example({.index = i, .epoch = 1});
    const PretrainingExample again = mixed.example({.index = i + few->size(), .epoch = 1});
    EXPECT_EQ(first, few->example({.index = i, .epoch = 1}));
    EXPECT_EQ(unmasked(first).input_ids, unmasked(again).input_ids);
    others += first.masked_lm_positions != again.masked_lm_positions ? 1 : 0;
  }
  EXPECT_GT(2 * others, few->size());
  EXPECT_EQ(unmasked(mixed.example({.index = 2 * few->size(), .epoch = 0})).input_ids,
            unmasked(many->example({.index = 0, .epoch = 0})).input_ids);
}

TEST(DocumentExamples, StopAtTheFirstSoMany) {
  ExampleOptions how = options();
  const Documents documents = make_documents(9, 12, how.longest_sentence());
  const DocumentExamples all(documents, how);
  how.max_samples = 5;
  const DocumentExamples few(documents, how);
  EXPECT_EQ(few.size(), 5);
  EXPECT_EQ(few.example({.index = 4, .epoch = 0}), all.example({.index = 4, .epoch = 0}));
}

TEST(DocumentExamples, ChangeTheirFingerprintWithWhateverMakesThem) {
  const ExampleOptions plain = options();
  const Documents documents = make_documents(9, 12, 10);
  std::set<std::string> prints = {DocumentExamples(documents, plain).fingerprint()};
  const auto add = [&](const auto& change) {
    ExampleOptions how = plain;
    change(how);
    prints.insert(DocumentExamples(documents, how).fingerprint());
  };
  add([](ExampleOptions& how) { how.masking.seed = 8; });
  add([](ExampleOptions& how) { how.dupe_factor = 2; });
  add([](ExampleOptions& how) { how.short_seq_prob = 0.5; });
  add([](ExampleOptions& how) { how.max_predictions = 2; });
  add([](ExampleOptions& how) { how.next_sentence = false; });
  EXPECT_EQ(prints.size(), 6U);
}

TEST(DocumentExamples, NeedTwoDocumentsForPairs) {
  ExampleOptions how = options();
  try {
    const DocumentExamples data(make_documents(1, 12, 10), how);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_GOLDEN(error.what());
  }
  how.next_sentence = false;
  EXPECT_GT(DocumentExamples(make_documents(1, 12, 10), how).size(), 0);
  how.max_seq_length = 2;
  EXPECT_THROW(static_cast<void>(how.room()), Error);
}

TEST(PretrainingCollator, PadsAndMarksWhatIsLearned) {
  const ExampleOptions how = options();
  const DocumentExamples data(make_documents(9, 12, how.longest_sentence()), how);
  PaddingOptions padding;
  padding.pad_id = ByteTokenizer::kPad;
  padding.pad_to_max_length = true;
  padding.max_seq_length = 40;
  const std::vector<SampleKey> keys = {{.index = 3, .epoch = 1}, {.index = 0, .epoch = 1}};
  const Batch batch = PretrainingCollator(padding).collate(data, keys);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 40);
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{3, 0}));
  int64_t words = 0;
  for (size_t row = 0; row < 2; ++row) {
    const PretrainingExample example = data.example(keys[row]);
    EXPECT_EQ(batch.classes[row], example.next_sentence_label);
    words += std::ssize(example.masked_lm_positions);
    for (size_t i = 0; i < 40; ++i) {
      const bool is_there = i < example.input_ids.size();
      const int64_t id = is_there ? example.input_ids[i] : ByteTokenizer::kPad;
      EXPECT_EQ(batch.input_ids[row * 40 + i], id);
      EXPECT_EQ(batch.attention_mask[row * 40 + i], is_there ? 1 : 0);
      EXPECT_EQ(batch.token_type_ids[row * 40 + i], is_there ? example.segment_ids[i] : 0);
    }
    for (size_t k = 0; k < example.masked_lm_ids.size(); ++k) {
      const auto position = static_cast<size_t>(example.masked_lm_positions[k]);
      EXPECT_EQ(batch.labels[row * 40 + position], example.masked_lm_ids[k]);
    }
  }
  EXPECT_EQ(batch.targets, words + 2);
}

}  // namespace
}  // namespace finetune::testing
