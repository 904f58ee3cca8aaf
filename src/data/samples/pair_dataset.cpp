// SPDX-License-Identifier: MIT
#include "finetune/data/pair_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/columns/json_row.h"
#include "data/samples/answer_rows.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

constexpr auto kNoLabel = static_cast<int32_t>(kIgnoredLabel);

// What happened to a row, stored as its class.
enum PairFlag : int32_t {
  kCut = 1,
  kSameAnswers = 2,
  kNoAnswer = 4,
  kLongPrompt = 8,
  kBadPair = 16,
  kOtherPrompt = 32,
  kHasQuestions = 64,
  kDesirable = 128,
  kUnreadPrompt = 256,
  kRepeatsPrompt = 512,
  kOfPair = 1024,
  kPairFlagLimit = 2048,
};
constexpr int32_t kNoPair = kSameAnswers | kNoAnswer | kLongPrompt | kBadPair;

// What there is to say of a pair or an answer.
template <typename Answers>
int32_t flags_of(const Answers& answers) {
  return (answers.has_questions ? kHasQuestions : 0) |
         (answers.has_other_prompt ? kUnreadPrompt : 0);
}

struct EncodedPair {
  ChatSample chosen, rejected;
  int64_t prompt = 0;  // tokens
  int32_t flags = 0;
};

// The first token after the prompt, which is not learned.
int64_t prompt_tokens(const ChatSample& sample) {
  return std::ranges::find_if(sample.labels, [](int32_t label) { return label != kNoLabel; }) -
         sample.labels.begin();
}

// Renders and tokenises rows.
class AnswerEncoder {
 protected:
  AnswerEncoder(const Tokenizer& tokenizer, const PairOptions& options)
      : tokenizer_(tokenizer), options_(options) {
    options_.progress = {};
    options_.completion_only = true;
    options_.truncates = false;
  }

  [[nodiscard]] const PairOptions& options() const { return options_; }

  // Calls `encode`. Returns false for a bad row that is left out.
  template <typename Encode>
  [[nodiscard]] bool encode_row(const Encode& encode) const {
    try {
      encode();
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      if (options_.skip_bad_rows) return false;
      throw with_skip_advice(error);
    }
  }

  [[nodiscard]] ChatSample sample_of(const Row& row, const Json& prompt, const Json& answer,
                                     const char* side) const {
    Json columns = {{"prompt", prompt}, {"completion", answer}};
    for (const char* name : {"tools", "chat_template_kwargs"}) {
      if (row.find(name)) columns[name] = row.at(name);
    }
    try {
      return make_chat_sample(columns, tokenizer_, options_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      row.fail(std::string(side) + ": " + error.what());
    }
  }

  void add_sequence(TokenContent& content, const ChatSample& sample, const Row& row) const {
    add_ids(content, sample.ids, row.position(), options_.vocabulary_limit);
    content.labels.insert(content.labels.end(), sample.labels.begin(), sample.labels.end());
  }

  // Cuts a sequence whose answer begins at `prompt`, and sets its labels. Returns what happened.
  [[nodiscard]] int32_t finish(ChatSample& sample, int64_t prompt, bool learns_all) const {
    const int64_t first_target = std::max<int64_t>(1, prompt);  // nothing predicts token 0
    int32_t flags = sample.prompt_rest.empty() ? 0 : kOtherPrompt;
    if (first_target >= std::ssize(sample.ids)) flags |= kNoAnswer;
    if (first_target >= options_.max_seq_length) flags |= kLongPrompt;
    sample.labels = sample.ids;
    if (!learns_all) std::fill_n(sample.labels.begin(), prompt, kNoLabel);
    if (std::ssize(sample.ids) <= options_.max_seq_length) return flags;
    sample.ids.resize(static_cast<size_t>(options_.max_seq_length));
    sample.labels.resize(static_cast<size_t>(options_.max_seq_length));
    return flags | kCut;
  }

 private:
  const Tokenizer& tokenizer_;
  PairOptions options_;
};

class PairEncoder : AnswerEncoder {
 public:
  PairEncoder(const Tokenizer& tokenizer, const PairOptions& options)
      : AnswerEncoder(tokenizer, options) {}

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.choices = 2;
    content.outputs = options().learns_chosen ? 1 : 0;
    for (const RowBlock::Row& position : block.rows) add(content, Row(block, position));
    return content;
  }

  // Throws Error(kData) with the row's position.
  [[nodiscard]] EncodedPair encode(const Row& row) const {
    EncodedPair encoded;
    const PreferencePair pair = preference_pair_of(row);
    if (is_empty_answer(pair.chosen) || is_empty_answer(pair.rejected)) {
      encoded.flags = kNoAnswer;
    } else if (pair.chosen == pair.rejected) {
      encoded.flags = kSameAnswers;
    }
    if (encoded.flags != 0) return encoded;
    encoded.flags |= flags_of(pair);
    if (pair.repeats_prompt) encoded.flags |= kRepeatsPrompt;
    encoded.chosen = sample_of(row, pair.prompt, pair.chosen, "chosen");
    encoded.rejected = sample_of(row, pair.prompt, pair.rejected, "rejected");
    encoded.prompt = std::min(prompt_tokens(encoded.chosen), prompt_tokens(encoded.rejected));
    encoded.flags |= finish(encoded.chosen, encoded.prompt, options().learns_chosen);
    encoded.flags |= finish(encoded.rejected, encoded.prompt, /*learns_all=*/false);
    // As far as they are read.
    const bool is_same = encoded.chosen.ids == encoded.rejected.ids;
    if (is_same && (encoded.flags & kLongPrompt) == 0) encoded.flags |= kSameAnswers;
    return encoded;
  }

 private:
  void add(TokenContent& content, const Row& row) const {
    EncodedPair pair;
    if (!encode_row([&] { pair = encode(row); })) pair.flags = kBadPair;
    if ((pair.flags & kNoPair) != 0) pair.chosen = pair.rejected = {};
    add_sequence(content, pair.chosen, row);
    add_sequence(content, pair.rejected, row);
    content.classes.push_back(pair.flags);
    if (options().learns_chosen) content.values.push_back(static_cast<float>(pair.prompt));
  }
};

// Example::values has the prompt's tokens.
class LabelledEncoder : AnswerEncoder {
 public:
  LabelledEncoder(const Tokenizer& tokenizer, const PairOptions& options)
      : AnswerEncoder(tokenizer, options) {}

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.outputs = 1;
    for (const RowBlock::Row& position : block.rows) {
      const Row row(block, position);
      std::vector<LabelledAnswer> answers;
      if (!encode_row([&] { answers = labelled_answers_of(row); })) {
        add(content, {}, kBadPair, 0, row);
      }
      for (const LabelledAnswer& answer : answers) add(content, answer, row);
    }
    return content;
  }

 private:
  void add(TokenContent& content, const LabelledAnswer& answer, const Row& row) const {
    ChatSample sample;
    int64_t prompt = 0;
    int32_t flags = flags_of(answer) | (answer.is_of_pair ? kOfPair : 0);
    const bool is_good = encode_row([&] {
      if (is_empty_answer(answer.text)) {
        flags |= kNoAnswer;
        return;
      }
      sample = sample_of(row, answer.prompt, answer.text, "completion");
      prompt = prompt_tokens(sample);
      flags |= finish(sample, prompt, /*learns_all=*/false);
    });
    if (!is_good) flags = kBadPair;
    if (answer.is_desirable) flags |= kDesirable;
    add(content, (flags & kNoPair) != 0 ? ChatSample() : sample, flags, prompt, row);
  }

  void add(TokenContent& content, const ChatSample& sample, int32_t flags, int64_t prompt,
           const Row& row) const {
    add_sequence(content, sample, row);
    content.classes.push_back(flags);
    content.values.push_back(static_cast<float>(prompt));
  }
};

// Adds a sequence of the prompt of one sample with the answer of another.
void add_mismatched(TokenContent& content, const Example& prompt, const Example& answer,
                    int64_t longest) {
  const auto begin = content.ids.size();
  const auto take = [&](const Example& from, int64_t first, int64_t end, bool learns) {
    for (int64_t i = first;
         i < end && std::ssize(content.ids) - static_cast<int64_t>(begin) < longest; ++i) {
      const auto id = static_cast<int32_t>(from.input_ids[static_cast<size_t>(i)]);
      content.ids.push_back(id);
      content.labels.push_back(learns ? id : kNoLabel);
    }
  };
  take(prompt, 0, static_cast<int64_t>(prompt.values[0]), false);
  take(answer, static_cast<int64_t>(answer.values[0]), std::ssize(answer.labels), true);
  content.offsets.push_back(std::ssize(content.ids));
}

// Returns for each of the samples, given by their flags, the one whose answer does not belong to
// its prompt.
std::vector<size_t> partners_of(const std::vector<int64_t>& indices,
                                const std::vector<int32_t>& flags) {
  const auto before = [&](size_t i) { return i == 0 ? flags.size() - 1 : i - 1; };
  // The sides of a pair are neighbours in all samples, the chosen one first.
  const auto pair_of = [&](size_t i) {
    return (flags[i] & kOfPair) == 0 ? -1 : indices[i] - ((flags[i] & kDesirable) != 0 ? 0 : 1);
  };
  const auto is_own_pair = [&](size_t a, size_t b) {
    return pair_of(a) >= 0 && pair_of(a) == pair_of(b);
  };
  const auto is_other_side = [&](size_t a, size_t b) {
    return (flags[a] & flags[b] & kOfPair) != 0 && ((flags[a] ^ flags[b]) & kDesirable) != 0;
  };
  std::vector<size_t> partners;
  for (size_t i = 0; i < flags.size(); ++i) {
    size_t partner = before(i);
    if (is_own_pair(i, partner)) partner = before(partner);
    if (is_other_side(i, partner) && is_own_pair(partner, before(partner))) {
      partner = before(partner);
    }
    partners.push_back(is_own_pair(i, partner) ? before(i) : partner);
  }
  return partners;
}

void count_flags(int32_t flags, PairCounts& counts) {
  const auto count = [&](int64_t& number, int32_t flag) { number += (flags & flag) != 0 ? 1 : 0; };
  ++counts.rows;
  count(counts.same_answers, kSameAnswers);
  count(counts.empty_answers, kNoAnswer);
  count(counts.long_prompts, kLongPrompt);
  count(counts.bad, kBadPair);
  if ((flags & kNoPair) != 0) return;
  count(counts.truncated, kCut);
  count(counts.prompt_differs, kOtherPrompt);
  count(counts.has_questions, kHasQuestions);
  count(counts.unread_prompts, kUnreadPrompt);
  count(counts.repeated_prompts, kRepeatsPrompt);
}

Json cache_key(const PairOptions& options, const char* kind) {
  Json key = cache_options(options, kind);
  key["renderer"] = options.renderer_identity;
  key["special_tokens_as_text"] = options.special_tokens_as_text;
  key["skip_bad_rows"] = options.skip_bad_rows;
  key["learns_chosen"] = options.learns_chosen;
  return key;
}

// Throws Error(kConfig): nothing is left.
[[noreturn]] void fail_without_pairs(const PairOptions& options, const PairCounts& counts) {
  throw Error(ErrorKind::kConfig,
              format_text("{}: no pair of {} is left to compare: of {} the answers are the same, "
                          "{} have a side without an answer, of {} the prompt alone fills "
                          "max_seq_length {}, {} cannot be read",
                          options.key, options.key, counts.same_answers, counts.empty_answers,
                          counts.long_prompts, options.max_seq_length, counts.bad));
}

// The end of a prompt that is not the beginning of what comes with its answer.
std::string difference_of(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const PairOptions& options, int64_t number) {
  std::string text;
  const PairEncoder encoder(tokenizer, options);
  for_each_row(files, options, [&](const Row& row) {
    if (--number > 0) return true;
    const EncodedPair pair = encoder.encode(row);
    const bool is_chosen = !pair.chosen.prompt_rest.empty();
    text = tokenizer.decode(is_chosen ? pair.chosen.prompt_rest : pair.rejected.prompt_rest,
                            /*skip_special_tokens=*/false);
    return false;
  });
  return text;
}

}  // namespace

PairDataset::PairDataset(std::shared_ptr<const SequenceDataset> rows) : KeptSamples(rows) {
  for (int64_t i = 0; i < rows->size(); ++i) {
    const auto flags = static_cast<int32_t>(rows->get(i).label.value_or(0));
    count_flags(flags, counts_);
    if ((flags & kNoPair) != 0) continue;
    if ((flags & kOtherPrompt) != 0 && first_differing_ == 0) first_differing_ = i + 1;
    keep(i);
  }
}

std::shared_ptr<const PairDataset> build_pair_dataset(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const PairOptions& options) {
  FT_CHECK(options.renderer != nullptr, "conversations need a renderer");
  check_max_samples(options);
  std::string unread_columns;
  if (!options.skip_bad_rows) {
    const Row first = first_row(files, options);
    unread_columns = unread_texts(first);
    for (const char* side : {"chosen", "rejected"}) {
      if (first.find(side)) continue;
      const bool is_unpaired = first.find("completion") && first.find("label");
      first.refuse(std::string("there is no column '") + side + "'; the row has " +
                   column_names(first.columns()) +
                   (is_unpaired
                        ? "; answers that are not in pairs are what task kto learns from"
                        : "; preferences are rows of chosen and rejected, with prompt where both "
                          "share one"));
    }
  }
  const auto encoder = std::make_shared<const PairEncoder>(tokenizer, options);
  auto data = std::make_shared<PairDataset>(
      build_samples({.files = files,
                     .tokenizer = tokenizer,
                     .cache_options = cache_key(options, "pairs, 2"),
                     .limits = {.labels = options.vocabulary_limit, .classes = kPairFlagLimit},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options));
  if (data->size() == 0) fail_without_pairs(options, data->counts());
  data->set_unread_columns(std::move(unread_columns));
  if (const int64_t first = data->first_differing(); first > 0) {
    PairOptions quiet = options;
    quiet.progress = {};
    data->set_first_difference(difference_of(files, tokenizer, quiet, first));
  }
  return data;
}

std::shared_ptr<const AnswerDataset> build_answer_dataset(const std::vector<std::string>& files,
                                                          const Tokenizer& tokenizer,
                                                          const PairOptions& options) {
  FT_CHECK(options.renderer != nullptr, "conversations need a renderer");
  check_max_samples(options);
  const auto encoder = std::make_shared<const LabelledEncoder>(tokenizer, options);
  const auto rows =
      build_samples({.files = files,
                     .tokenizer = tokenizer,
                     .cache_options = cache_key(options, "answers with labels, 2"),
                     .limits = {.labels = options.vocabulary_limit, .classes = kPairFlagLimit},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options);
  PairCounts counts;
  if (!options.skip_bad_rows) counts.unread_columns = unread_texts(first_row(files, options));
  std::vector<int64_t> kept;
  std::vector<int32_t> kept_flags;
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < rows->size(); ++i) {
    const auto flags = static_cast<int32_t>(rows->get(i).label.value_or(0));
    count_flags(flags, counts);
    if ((flags & kNoPair) != 0) continue;
    kept.push_back(i);
    kept_flags.push_back(flags);
    classes.push_back((flags & kDesirable) != 0 ? 1 : 0);
  }
  if (kept.empty()) fail_without_pairs(options, counts);
  const std::vector<size_t> partners = partners_of(kept, kept_flags);
  TokenContent content;
  content.choices = 2;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Example own = rows->get(kept[i]);
    const Example other = rows->get(kept[partners[i]]);
    for (size_t t = 0; t < own.labels.size(); ++t) {
      content.ids.push_back(static_cast<int32_t>(own.input_ids[t]));
      content.labels.push_back(own.labels[t]);
    }
    content.offsets.push_back(std::ssize(content.ids));
    add_mismatched(content, own, other, options.max_seq_length);
  }
  content.classes = classes;
  return std::make_shared<const AnswerDataset>(
      std::make_shared<const TokenDataset>(std::move(content)), counts,
      std::ranges::count(classes, 1));
}

}  // namespace finetune
