// SPDX-License-Identifier: MIT
#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/shard_examples.h"
#include "finetune/data/tf_example.h"

namespace finetune {
namespace {

constexpr std::string_view kInputIds = "input_ids";
constexpr std::string_view kSegmentIds = "segment_ids";
constexpr std::string_view kPositions = "masked_lm_positions";
constexpr std::string_view kMaskedIds = "masked_lm_ids";
constexpr std::string_view kWeights = "masked_lm_weights";
constexpr std::string_view kNextSentence = "next_sentence_labels";

using Numbers = std::vector<int64_t>;

template <class Values>
Numbers filled(const Values& values, int64_t size, int64_t filling) {
  FT_CHECK(std::ssize(values) <= size, "an example fits its record");
  Numbers numbers(values.begin(), values.end());
  numbers.resize(static_cast<size_t>(size), filling);
  return numbers;
}

// The features of one record.
class Features {
 public:
  Features(const TfExampleReader& example, const TfPosition& position)
      : example_(example), position_(position) {}

  [[nodiscard]] const Numbers& numbers(std::string_view name) const {
    const auto* numbers = std::get_if<Numbers>(&find(name));
    if (numbers == nullptr) fail(name, "holds no whole numbers");
    return *numbers;
  }

  // Determines which masked positions have weight 1.
  void find_weights(std::vector<bool>& counts) const {
    const auto* weights = std::get_if<std::vector<float>>(&find(kWeights));
    if (weights == nullptr) fail(kWeights, "holds no numbers of type float");
    counts.clear();
    for (const float weight : *weights) {
      if (weight != 0.0F && weight != 1.0F) fail(kWeights, "holds a weight other than 0 and 1");
      counts.push_back(weight == 1.0F);
    }
  }

  void check_range(std::string_view name, int64_t value, int64_t end) const {
    if (value >= 0 && value < end) return;
    fail(name, format_text("holds {}, which is not within 0 to {}", value, end - 1));
  }

  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    throw Error(ErrorKind::kData, position_() + ": feature '" + std::string(name) + "' " + what +
                                      "; write the shards again, with the tokenizer and the "
                                      "max_seq_length of this run");
  }

 private:
  [[nodiscard]] const TfFeature& find(std::string_view name) const {
    const TfFeature* found = example_.find(name);
    if (found == nullptr) fail(name, "is missing");
    return *found;
  }

  const TfExampleReader& example_;
  const TfPosition& position_;
};

// Reused memory of the thread, which decodes one record after the other.
struct RecordMemory {
  TfExampleReader reader;
  std::vector<bool> counts;  // whether each masked position has weight 1
  std::vector<bool> taken;   // whether each position of the text is masked
};
thread_local RecordMemory record_memory;

int64_t length_without_padding(const Features& features, const Numbers& ids,
                               const ShardOptions& options) {
  int64_t length = std::ssize(ids);
  while (length > 0 && ids[static_cast<size_t>(length) - 1] == options.pad_id) --length;
  if (length == 0) features.fail(kInputIds, "holds no token");
  if (length > options.max_seq_length) {
    features.fail(kInputIds, format_text("holds {} tokens, more than the {} of max_seq_length",
                                         length, options.max_seq_length));
  }
  return length;
}

void take_masked(const Features& features, int64_t length, int64_t vocabulary,
                 PretrainingExample& example) {
  const Numbers& positions = features.numbers(kPositions);
  const Numbers& ids = features.numbers(kMaskedIds);
  std::vector<bool>& counts = record_memory.counts;
  features.find_weights(counts);
  if (positions.size() != ids.size() || positions.size() != counts.size()) {
    features.fail(kPositions, "has another length than masked_lm_ids or masked_lm_weights");
  }
  std::vector<bool>& taken = record_memory.taken;
  taken.assign(static_cast<size_t>(length), false);
  for (size_t i = 0; i < positions.size(); ++i) {
    if (!counts[i]) continue;
    features.check_range(kPositions, positions[i], length);
    features.check_range(kMaskedIds, ids[i], vocabulary);
    const auto position = static_cast<size_t>(positions[i]);
    if (taken[position]) features.fail(kPositions, "names a place twice");
    taken[position] = true;
    example.masked_lm_positions.push_back(static_cast<int32_t>(positions[i]));
    example.masked_lm_ids.push_back(static_cast<int32_t>(ids[i]));
  }
}

}  // namespace

std::string encode_example(const PretrainingExample& example, const ShardLayout& layout) {
  std::vector<float> weights(example.masked_lm_positions.size(), 1.0F);
  weights.resize(static_cast<size_t>(layout.max_predictions), 0.0F);
  TfExample features;
  const auto add = [&](std::string_view name, TfFeature feature) {
    features.emplace(std::string(name), std::move(feature));
  };
  add(kInputIds, filled(example.input_ids, layout.max_seq_length, layout.pad_id));
  add(kSegmentIds, filled(example.segment_ids, layout.max_seq_length, 0));
  add(kPositions, filled(example.masked_lm_positions, layout.max_predictions, 0));
  add(kMaskedIds, filled(example.masked_lm_ids, layout.max_predictions, 0));
  add(kWeights, std::move(weights));
  // Readers of the format expect a label even for models without that head.
  const bool is_asked = example.next_sentence_label != kIgnoredLabel;
  add(kNextSentence, Numbers{is_asked ? example.next_sentence_label : PretrainingExample::kIsNext});
  return encode_tf_example(features);
}

void decode_example(std::string_view data, const TfPosition& position, const ShardOptions& options,
                    PretrainingExample& example) {
  example.clear();
  record_memory.reader.read(data, position);
  const Features features(record_memory.reader, position);
  const int64_t vocabulary =
      options.vocabulary_limit > 0 ? options.vocabulary_limit : int64_t{INT32_MAX};
  const Numbers& ids = features.numbers(kInputIds);
  const Numbers& segments = features.numbers(kSegmentIds);
  if (segments.size() != ids.size()) {
    features.fail(kSegmentIds, format_text("has {} numbers where input_ids has {}", segments.size(),
                                           ids.size()));
  }
  const int64_t length = length_without_padding(features, ids, options);
  for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
    features.check_range(kInputIds, ids[i], vocabulary);
    features.check_range(kSegmentIds, segments[i], options.token_types);
    example.input_ids.push_back(static_cast<int32_t>(ids[i]));
    example.segment_ids.push_back(static_cast<uint8_t>(segments[i]));
  }
  take_masked(features, length, vocabulary, example);
  if (!options.next_sentence) return;
  const Numbers& labels = features.numbers(kNextSentence);
  if (labels.size() != 1) features.fail(kNextSentence, "does not hold one number");
  features.check_range(kNextSentence, labels.front(), 2);
  example.next_sentence_label = labels.front();
}

PretrainingExample decode_example(std::string_view data, const std::string& position,
                                  const ShardOptions& options) {
  PretrainingExample example;
  decode_example(
      data, [&position] { return position; }, options, example);
  return example;
}

}  // namespace finetune
