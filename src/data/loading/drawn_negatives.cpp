// SPDX-License-Identifier: MIT
#include "finetune/data/drawn_negatives.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "data/samples/sample_building.h"
#include "finetune/data/permutation.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

namespace {

std::vector<int32_t> ids_of(const SequenceDataset& texts, int64_t sample, int64_t text) {
  const TokenSpan span = texts.get(sample, text).input_ids;
  std::vector<int32_t> ids(span.size());
  span.copy_to(ids.data());
  return ids;
}

}  // namespace

struct DrawnNegatives::State {
  std::shared_ptr<const SequenceDataset> texts;
  SequenceMaker maker;
  int64_t special;  // tokens of a pair
  int64_t max_length;
  int64_t documents;  // of a sample itself
  int64_t drawn;
  uint64_t seed;

  [[nodiscard]] int64_t pair_length(int64_t query, int64_t document) const {
    return std::min(max_length, query + document + special);
  }

  struct Drawn {
    int64_t sample = 0, text = 0;
    std::vector<int32_t> ids = {};
    bool is_equal = false;  // to a document of the sample itself
  };
  // In the order in which they are drawn.
  [[nodiscard]] std::vector<Drawn> draw(const SampleKey& key) const {
    constexpr int64_t kMostEqual = 64;  // that are passed over
    const int64_t others = (texts->size() - 1) * documents;
    std::vector<Drawn> found;
    if (drawn == 0) return found;
    const Permutation order(others, seed_of_sample(seed, key.index),
                            std::max<int64_t>(key.epoch, 0));
    std::vector<std::vector<int32_t>> own;
    for (int64_t text = 1; text <= documents; ++text) {
      own.push_back(ids_of(*texts, key.index, text));
    }
    int64_t spare = std::min(others - drawn, kMostEqual);
    for (int64_t i = 0; std::ssize(found) < drawn; ++i) {
      const int64_t position = order[i];
      const int64_t sample = position / documents;
      Drawn one = {.sample = sample + (sample >= key.index ? 1 : 0),
                   .text = 1 + position % documents};
      one.ids = ids_of(*texts, one.sample, one.text);
      one.is_equal = std::ranges::find(own, one.ids) != own.end();
      if (one.is_equal && spare-- > 0) continue;
      found.push_back(std::move(one));
    }
    return found;
  }
};

DrawnNegatives::DrawnNegatives(std::shared_ptr<const SequenceDataset> texts,
                               const Tokenizer& tokenizer, const SampleOptions& options,
                               int64_t count, uint64_t seed)
    : SampleView(texts),
      state_(std::make_unique<State>(
          State{.texts = texts,
                .maker = SequenceMaker(tokenizer, options, /*pair=*/true),
                .special = tokenizer.num_special_tokens_to_add(/*pair=*/true),
                .max_length = options.max_seq_length,
                .documents = texts->choices() - 1,
                .drawn = std::min(count, (texts->size() - 1) * (texts->choices() - 1)),
                .seed = seed})) {}

DrawnNegatives::~DrawnNegatives() = default;

int64_t DrawnNegatives::choices() const { return state_->documents + state_->drawn; }

Example DrawnNegatives::get(int64_t index, int64_t choice) const {
  const State& s = *state_;
  if (choice < s.documents) return s.texts->get(index, 1 + choice);
  const State::Drawn one =
      s.draw({.index = index, .epoch = 0}).at(static_cast<size_t>(choice - s.documents));
  return s.texts->get(one.sample, one.text);
}

int64_t DrawnNegatives::length(int64_t index, int64_t choice) const {
  const State& s = *state_;
  const int64_t document =
      choice < s.documents ? s.texts->length(index, 1 + choice) : s.texts->longest();
  return s.pair_length(s.texts->length(index, 0), document);
}

int64_t DrawnNegatives::tokens() const { return state_->texts->tokens(); }

int64_t DrawnNegatives::longest() const {
  return state_->pair_length(state_->texts->longest(), state_->texts->longest());
}

void DrawnNegatives::add_pairs(const SampleKey& key, TokenContent& content) const {
  const State& s = *state_;
  const std::vector<int32_t> query = ids_of(*s.texts, key.index, 0);
  const auto add = [&](const std::vector<int32_t>& document) {
    s.maker.add(content, s.maker.make(query, document), "a pair");
  };
  content.choices = content.outputs = choices();
  for (int64_t text = 1; text <= s.documents; ++text) {
    add(ids_of(*s.texts, key.index, text));
    content.values.push_back(text == 1 ? 1.0F : 0.0F);
  }
  for (const State::Drawn& one : s.draw(key)) {
    add(one.ids);
    content.values.push_back(one.is_equal ? std::numeric_limits<float>::quiet_NaN() : 0.0F);
  }
}

namespace {

class DrawnNegativesCollator final : public Collator {
 public:
  explicit DrawnNegativesCollator(std::shared_ptr<const Collator> padding)
      : padding_(std::move(padding)) {}

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override {
    const auto* drawn = dynamic_cast<const DrawnNegatives*>(&dataset);
    if (drawn == nullptr) return padding_->collate(dataset, samples, batch);
    TokenContent content;
    std::vector<SampleKey> keys;
    for (const SampleKey& key : samples) {
      drawn->add_pairs(key, content);
      keys.push_back({.index = std::ssize(keys), .epoch = key.epoch});
    }
    drop_plain_types(content);
    padding_->collate(TokenDataset(std::move(content)), keys, batch);
    for (size_t i = 0; i < samples.size(); ++i) batch.samples[i] = samples[i].index;
  }

 private:
  std::shared_ptr<const Collator> padding_;
};

}  // namespace

std::shared_ptr<const Collator> make_drawn_negatives_collator(
    std::shared_ptr<const Collator> padding) {
  return std::make_shared<DrawnNegativesCollator>(std::move(padding));
}

}  // namespace finetune
