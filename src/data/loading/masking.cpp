// SPDX-License-Identifier: MIT
#include "finetune/data/masking.h"

#include <limits>
#include <string>

#include "data/loading/mask_rules.h"
#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/base/text.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

uint64_t masking_key(uint64_t seed, const SampleKey& sample) {
  const auto index = static_cast<uint64_t>(sample.index);
  if (sample.epoch == SampleKey::kEvaluation) {
    return random::make_key(seed, random::Purpose::kEvaluationMasking, index);
  }
  return random::make_key(seed, random::Purpose::kMasking, static_cast<uint64_t>(sample.epoch),
                          index);
}

MaskingOptions MaskingOptions::from(const Tokenizer& tokenizer, bool whole_words) {
  const auto& mask = tokenizer.special_tokens().mask;
  if (!mask || mask->id < 0) {
    throw Error(ErrorKind::kData,
                "the tokenizer has no mask token, which masked language modelling needs; choose "
                "another tokenizer, or add a mask_token to its tokenizer_config.json");
  }
  MaskingOptions options;
  options.mask_id = mask->id;
  options.vocabulary = tokenizer.size();
  options.special.resize(static_cast<size_t>(options.vocabulary));
  for (size_t id = 0; id < options.special.size(); ++id) {
    options.special[id] = tokenizer.is_special(static_cast<int32_t>(id)) ? 1 : 0;
  }
  if (whole_words) {
    options.continues_word.resize(options.special.size());
    for (size_t id = 0; id < options.special.size(); ++id) {
      options.continues_word[id] = tokenizer.continues_word(static_cast<int32_t>(id)) ? 1 : 0;
    }
  }
  return options;
}

Masking::Masking(MaskingOptions options) : options_(std::move(options)) {
  FT_CHECK(options_.mask_id >= 0, "masking needs a mask token");
  FT_CHECK(options_.vocabulary > 0 && options_.vocabulary <= std::numeric_limits<int32_t>::max(),
           "masking needs a vocabulary");
  if (!(options_.mlm_probability > 0.0 && options_.mlm_probability <= 1.0)) {
    throw Error(ErrorKind::kConfig,
                format_text("mlm_probability must be above 0 and at most 1, but is {}",
                            format_number("%f", options_.mlm_probability)));
  }
}

int64_t Masking::apply(const SampleKey& sample, std::span<int64_t> input_ids,
                       std::span<int64_t> labels) const {
  FT_CHECK(input_ids.size() == labels.size(), "as many labels as ids");
  random::Sequence sequence(masking_key(options_.seed, sample));
  if (!options_.continues_word.empty()) return mask_words(sequence, input_ids, labels);
  int64_t targets = 0;
  for (size_t i = 0; i < input_ids.size(); ++i) {
    const int64_t id = input_ids[i];
    labels[i] = kIgnoredLabel;
    if (marks(options_.special, id)) continue;
    if (sequence.uniform() >= options_.mlm_probability) continue;
    labels[i] = id;
    ++targets;
    input_ids[i] = masked(options_, sequence, id);
  }
  return targets;
}

// Masks whole words: as in transformers, every selected token becomes the mask token, without
// random or unchanged tokens.
int64_t Masking::mask_words(random::Sequence& sequence, std::span<int64_t> input_ids,
                            std::span<int64_t> labels) const {
  int64_t targets = 0;
  bool inside = false;  // the previous token belongs to a word that this one may continue
  bool chosen = false;
  for (size_t i = 0; i < input_ids.size(); ++i) {
    const int64_t id = input_ids[i];
    labels[i] = kIgnoredLabel;
    if (marks(options_.special, id)) {
      inside = false;
      continue;
    }
    if (!inside || !marks(options_.continues_word, id)) {
      chosen = sequence.uniform() < options_.mlm_probability;
    }
    inside = true;
    if (!chosen) continue;
    labels[i] = id;
    ++targets;
    input_ids[i] = options_.mask_id;
  }
  return targets;
}

}  // namespace finetune
