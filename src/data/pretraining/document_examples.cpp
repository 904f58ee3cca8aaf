// SPDX-License-Identifier: MIT
#include "finetune/data/document_examples.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "data/pretraining/bounded_masking.h"
#include "data/pretraining/example_plan.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/text.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

int32_t id_of(const std::optional<SpecialTokens::Token>& first,
              const std::optional<SpecialTokens::Token>& second, const std::string& name) {
  for (const auto& token : {first, second}) {
    if (token && token->id >= 0) return token->id;
  }
  throw Error(
      ErrorKind::kData,
      "the tokenizer has no " + name +
          " token, which examples of pretraining need; choose another tokenizer, or add a " + name +
          "_token to its tokenizer_config.json");
}

template <class Value>
void add_values(Hasher& hasher, const std::vector<Value>& values) {
  const uint64_t count = values.size();
  hasher.update(&count, sizeof(count));
  hasher.update(values.data(), values.size() * sizeof(Value));
}

}  // namespace

ExampleOptions ExampleOptions::from(const Tokenizer& tokenizer, bool whole_words) {
  const SpecialTokens& special = tokenizer.special_tokens();
  ExampleOptions options;
  options.cls_id = id_of(special.cls, special.bos, "cls");
  options.sep_id = id_of(special.sep, special.eos, "sep");
  options.masking = MaskingOptions::from(tokenizer, whole_words);
  return options;
}

int64_t ExampleOptions::room() const {
  const int64_t special = next_sentence ? 3 : 2;
  const int64_t least = next_sentence ? 2 : 1;
  if (max_seq_length < special + least) {
    throw Error(ErrorKind::kConfig, format_text("max_seq_length {} leaves no room for text beside "
                                                "the {} special tokens; raise it to at least {}",
                                                max_seq_length, special, special + least));
  }
  return max_seq_length - special;
}

int64_t ExampleOptions::longest_sentence() const { return next_sentence ? room() / 2 : room(); }

DocumentExamples::DocumentExamples(Documents documents, const ExampleOptions& options,
                                   const ShowStep& show)
    : documents_(std::move(documents)), options_(options) {
  const double share =
      options_.masking.mlm_probability * static_cast<double>(options_.max_seq_length);
  max_predictions_ = options_.max_predictions.value_or(
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share))));
  if (options_.next_sentence && documents_.size() < 2) {
    throw Error(
        ErrorKind::kData,
        options_.key +
            ": holds one document only, but the next sentence is learned from pairs of two; "
            "put empty lines between documents, set line_by_line: true where each line is "
            "one, or set use_nsp: false");
  }
  measure(show);
}

DocumentExamples::~DocumentExamples() = default;

int64_t DocumentExamples::size() const { return plans_->size(); }

void DocumentExamples::measure(const ShowStep& show) {
  Hasher hasher;
  documents_.hash_into(hasher, show);
  const auto visit = [&](const ExamplePlan& plan) {
    const int64_t after = plan.first + plan.first_count;
    const auto tokens = static_cast<int64_t>(documents_.tokens(plan.first, after).size());
    const int64_t length = tokens + plan.kept + (options_.next_sentence ? 3 : 2);
    extent_.longest = std::max(extent_.longest, length);
    hasher.update(&plan, sizeof(plan));
  };
  plans_ = std::make_unique<const ExamplePlans>(documents_, options_, visit, show);
  const std::vector<int64_t> rules = {max_predictions_, options_.next_sentence ? 1 : 0,
                                      options_.max_seq_length};
  add_values(hasher, rules);
  fingerprint_ = hasher.hex();
  extent_.token_types = options_.next_sentence ? 2 : 1;
  extent_.bytes = documents_.memory_bytes() + plans_->memory_bytes();
}

void DocumentExamples::make_unmasked(const ExamplePlan& plan, PretrainingExample& example) const {
  example.clear();
  auto& ids = example.input_ids;
  const auto put = [&](TokenSpan tokens) {
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    ids.push_back(options_.sep_id);
  };
  ids.push_back(options_.cls_id);
  put(documents_.tokens(plan.first, plan.first + plan.first_count));
  example.segment_ids.assign(ids.size(), 0);
  if (plan.label == kIgnoredLabel) return;
  put(documents_.tokens(plan.other, plan.other + plan.other_count)
          .first(static_cast<size_t>(plan.kept)));
  example.segment_ids.resize(ids.size(), 1);
  example.next_sentence_label = plan.label;
}

void DocumentExamples::make(int64_t index, const SampleKey& mask,
                            PretrainingExample& example) const {
  FT_CHECK(index >= 0 && index < size(), "sample index out of range");
  make_unmasked(plans_->at(index), example);
  mask_example(options_.masking, mask, max_predictions_, example);
}

}  // namespace finetune
