// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/hash.h"
#include "finetune/data/text_dataset.h"

namespace finetune {
namespace {

// Returns the text that make_text_goldens.py writes: empty and blank lines, all three line ends, a
// byte order mark, no end on the last line.
std::string sample_text() {
  const std::vector<std::string> words = {"saluton", "mondo", "ĉu", "vi", "地図", "ok"};
  std::string text = "\uFEFF";
  for (size_t i = 0; i < 2500; ++i) {
    if (i % 7 == 3) {
    } else if (i % 11 == 5) {
      text += "  \u3000";
    } else {
      for (size_t j = 0; j < (i * 37) % 23 + 1; ++j) {
        text += (j > 0 ? " " : "") + words[(i * 5 + j * 3 + j / 4) % 6];
      }
    }
    text += i % 5 == 0 ? "\r\n" : i % 97 == 1 ? "\r" : "\n";
  }
  return text + "fino";
}

enum class Part { kAll, kTrain, kValidation };

struct Golden {
  Part part;
  bool line_by_line;
  int64_t max_seq_length;
  int64_t rows;
  int64_t samples;
  int64_t tokens;
  std::string ids_hash;  // XXH3-128 of all ids as little-endian int32
};

// Printed by make_text_goldens.py with datasets 5.2.0, transformers 5.23.0, tokenizers 0.23.3.
const std::vector<Golden> kGoldens = {
    {Part::kAll, true, 24, 2498, 1949, 43144, "f2bd722118501f3b176a2b348812d398"},
    {Part::kAll, false, 128, 2498, 972, 124416, "aadc016965191168195d4c2a09cf2688"},
    {Part::kAll, false, 1000, 2498, 122, 122000, "e0dbcd3a3905a563f7dbbfe6df137df6"},
    {Part::kTrain, true, 24, 2373, 1851, 40989, "58ac6d21595e49b2253cff5b21fca820"},
    {Part::kTrain, false, 128, 2373, 924, 118272, "d67c441e00b50bda72f135cf386e08c8"},
    {Part::kTrain, false, 1000, 2373, 117, 117000, "bd0b54efb47ddf647f1af4e5057894cf"},
    {Part::kValidation, true, 24, 125, 98, 2155, "52a7c5a5827001fb9ff8994bbf62f6f1"},
    {Part::kValidation, false, 128, 125, 48, 6144, "813692d707a4c2e7ee7e9c7dff1b3ad2"},
    {Part::kValidation, false, 1000, 125, 6, 6000, "c680944c6673ec18eff36c2a4fcde55b"},
};

RowRange rows_of(Part part, const std::string& path) {
  const int64_t rows = count_rows({path}, "train_file");
  if (part == Part::kAll) return {.begin = 0, .end = rows};
  const RowSplit split = split_rows(rows, 5);
  return part == Part::kTrain ? split.train : split.validation;
}

TEST(TextDataset, EqualsWhatRunMlmMakesOfTheSameText) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("text.txt", sample_text());
  for (const Golden& golden : kGoldens) {
    TextOptions options;
    options.line_by_line = golden.line_by_line;
    options.max_seq_length = golden.max_seq_length;
    options.rows = rows_of(golden.part, path);
    const auto dataset = build_text_dataset({path}, testing::ByteTokenizer(), options);
    Hasher ids;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const std::vector<int32_t> sample = dataset->get(i).input_ids.to_vector();
      ids.update(sample.data(), sample.size() * sizeof(int32_t));
    }
    EXPECT_EQ(options.rows.end - options.rows.begin, golden.rows);
    EXPECT_EQ(dataset->size(), golden.samples);
    EXPECT_EQ(dataset->tokens(), golden.tokens);
    EXPECT_EQ(ids.hex(), golden.ids_hash)
        << "line_by_line " << golden.line_by_line << ", max_seq_length " << golden.max_seq_length;
  }
}

}  // namespace
}  // namespace finetune
