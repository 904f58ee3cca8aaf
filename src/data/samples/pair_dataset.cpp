// SPDX-License-Identifier: MIT
#include "finetune/data/pair_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/columns/json_row.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
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
  kPairFlagLimit = 256,
};
constexpr int32_t kNoPair = kSameAnswers | kNoAnswer | kLongPrompt | kBadPair;

// A prompt with its two answers: texts, or lists of messages.
struct Pair {
  Json prompt, chosen, rejected;
};

bool is_message(const Json& value) {
  return value.is_object() && (value.contains("role") || value.contains("from"));
}

// A column's text or messages; of files whose values are all text, also messages as JSON.
Json text_or_messages(const Row& row, const char* column) {
  Json value = row.at(column);
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.starts_with("[{")) return parse_json(text, row.position() + ": " + column);
    return value;
  }
  if (is_message(value)) return Json::array({std::move(value)});
  if (value.is_array() && std::ranges::all_of(value, is_message)) return value;
  row.fail(std::string("column '") + column + "' holds " + describe(value) +
           "; it is a text or a list of messages");
}

std::string role_of(const Json& message) {
  for (const char* name : {"role", "from"}) {
    const auto found = message.find(name);
    if (found != message.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

bool asks(const Json& message) {
  const std::string role = role_of(message);
  return role == "user" || role == "human" || role == "system";
}

// The number of characters' bytes that both texts begin with, as TRL's extract_prompt finds it: of
// a text that the other begins with all but the last character, and no space at the end.
size_t common_text(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t common = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const bool is_whole = common == shorter;
  const auto is_inside = [&](size_t at) {
    return at < a.size() && (static_cast<unsigned char>(a[at]) & 0xC0U) == 0x80U;
  };
  if (is_whole && common > 0) --common;
  while (common > 0 && is_inside(common)) --common;
  if (!is_whole && common > 0 && a[common - 1] == ' ') --common;
  return common;
}

// Takes what both sides begin with from them, as the prompt.
void extract_prompt(Pair& pair, const Row& row) {
  if (pair.chosen.is_string()) {
    const auto chosen = pair.chosen.get<std::string>();
    const auto rejected = pair.rejected.get<std::string>();
    const size_t common = common_text(chosen, rejected);
    pair = {chosen.substr(0, common), chosen.substr(common), rejected.substr(common)};
    return;
  }
  const size_t shorter = std::min(pair.chosen.size(), pair.rejected.size());
  size_t common = 0;
  while (common < shorter && pair.chosen[common] == pair.rejected[common]) ++common;
  if (common == shorter && common > 0) --common;
  if (common == 0 && shorter > 0) {
    row.fail(
        "'chosen' and 'rejected' begin with different messages, so that they have no prompt "
        "in common");
  }
  const auto split = [&](Json& side) {
    Json rest = Json::array();
    for (size_t i = common; i < side.size(); ++i) rest.push_back(std::move(side[i]));
    return rest;
  };
  Json prompt = Json::array();
  for (size_t i = 0; i < common; ++i) prompt.push_back(pair.chosen[i]);
  pair = {std::move(prompt), split(pair.chosen), split(pair.rejected)};
}

bool has(const Row& row, const char* column) {
  return row.find(column) && !row.at(column).is_null();
}

Json message(const char* role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

// The messages before an answer of a row of LLaMA-Factory's; null: the row has other columns.
Json messages_before(const Row& row) {
  for (const char* column : {"conversations", "messages"}) {
    if (!has(row, column)) continue;
    Json messages = Json::array();
    if (has(row, "system")) messages.push_back(message("system", row.text("system")));
    const Json list = text_or_messages(row, column);
    if (!list.is_array()) row.fail(std::string("column '") + column + "' is a list of messages");
    for (const Json& one : list) messages.push_back(one);
    return messages;
  }
  if (!has(row, "instruction")) return nullptr;
  Json columns;  // in their usual spelling
  for (const char* column : {"system", "history", "instruction", "input"}) {
    if (has(row, column)) columns[column] = row.at(column);
  }
  try {
    return chat::alpaca_question(columns);
  } catch (const Error& error) {
    row.fail(error.what());
  }
}

Json as_messages(Json side) {
  if (!side.is_string()) return side;
  return Json::array({message("assistant", side.get<std::string>())});
}

Pair pair_of(const Row& row) {
  Pair pair{.prompt = nullptr,
            .chosen = text_or_messages(row, "chosen"),
            .rejected = text_or_messages(row, "rejected")};
  if (has(row, "prompt")) {
    pair.prompt = text_or_messages(row, "prompt");
  } else {
    pair.prompt = messages_before(row);
  }
  if (pair.chosen.is_string() != pair.rejected.is_string() || pair.prompt.is_array()) {
    pair.chosen = as_messages(std::move(pair.chosen));
    pair.rejected = as_messages(std::move(pair.rejected));
  }
  // A prompt as text that whole conversations repeat.
  if (pair.prompt.is_string() && pair.chosen.is_array()) {
    const bool has_answers = !pair.chosen.empty() && !pair.rejected.empty() &&
                             !asks(pair.chosen[0]) && !asks(pair.rejected[0]);
    pair.prompt = has_answers ? Json::array({message("user", pair.prompt.get<std::string>())})
                              : Json(nullptr);
  }
  if (pair.prompt.is_null()) extract_prompt(pair, row);
  return pair;
}

// Answers to different questions do not compare. Returns what else there is to say of the pair.
int32_t check_prompts(const Pair& pair, const Row& row) {
  int32_t flags = 0;
  for (const Json* side : {&pair.chosen, &pair.rejected}) {
    if (!side->is_array() || side->empty()) continue;
    if (asks(side->front())) {
      row.fail(
          "'chosen' and 'rejected' answer different prompts: after the messages that both "
          "begin with, the next is of '" +
          role_of(side->front()) + "', not an answer");
    }
    if (std::any_of(side->begin(), side->end(), asks)) flags |= kHasQuestions;
  }
  return flags;
}

// Whether an answer has no text and no tool call, so that it would teach to end at once.
bool is_empty(const Json& answer) {
  if (answer.is_string()) return answer.get_ref<const std::string&>().empty();
  return std::ranges::all_of(answer, [](const Json& message) {
    return std::ranges::all_of(message.items(), [](const auto& item) {
      const bool is_text = item.key() != "role" && item.key() != "from";
      return !is_text || item.value().is_null() || item.value().empty() || item.value() == "";
    });
  });
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
    const Pair pair = pair_of(row);
    if (is_empty(pair.chosen) || is_empty(pair.rejected)) {
      encoded.flags = kNoAnswer;
    } else if (pair.chosen == pair.rejected) {
      encoded.flags = kSameAnswers;
    }
    if (encoded.flags != 0) return encoded;
    encoded.flags |= check_prompts(pair, row);
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

// A prompt with an answer and its label.
struct Answer {
  Json prompt, text;
  bool is_desirable = false;
  int32_t flags = 0;
};

bool label_of(const Row& row) {
  for (const char* column : {"label", "kto_tag"}) {
    if (!has(row, column)) continue;
    const Json& value = row.at(column);
    if (value.is_boolean()) return value.get<bool>();
    if (value == 1 || value == "true" || value == "True" || value == "1") return true;
    if (value == 0 || value == "false" || value == "False" || value == "0") return false;
    row.fail(std::string("column '") + column + "' holds " + describe(value) +
             "; it is true for a desirable answer and false for another");
  }
  row.fail("there is no column 'label' (true for a desirable answer)");
}

// The answers of a row: one, or the two of a pair.
std::vector<Answer> answers_of(const Row& row) {
  if (has(row, "chosen") && has(row, "rejected")) {
    const Pair pair = pair_of(row);
    const int32_t flags = check_prompts(pair, row);
    return {{pair.prompt, pair.chosen, true, flags}, {pair.prompt, pair.rejected, false, flags}};
  }
  Answer answer{.prompt = nullptr, .text = nullptr, .is_desirable = label_of(row)};
  if (has(row, "completion")) {
    answer.prompt = has(row, "prompt") ? text_or_messages(row, "prompt") : messages_before(row);
    answer.text = text_or_messages(row, "completion");
    if (answer.prompt.is_null()) answer.prompt = answer.text.is_string() ? Json("") : Json::array();
  } else if (has(row, "output") && has(row, "instruction")) {
    answer.prompt = messages_before(row);
    answer.text = text_or_messages(row, "output");
  } else {
    answer.prompt = messages_before(row);
    if (!answer.prompt.is_array() || answer.prompt.size() < 2) {
      row.fail("there is no column 'completion', and no conversation that ends with an answer");
    }
    answer.text = Json::array({answer.prompt.back()});
    answer.prompt.erase(answer.prompt.size() - 1);
  }
  if (answer.prompt.is_array()) answer.text = as_messages(std::move(answer.text));
  if (answer.prompt.is_string() && answer.text.is_array()) {
    answer.prompt = Json::array({message("user", answer.prompt.get<std::string>())});
  }
  return {std::move(answer)};
}

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
      std::vector<Answer> answers;
      if (!encode_row([&] { answers = answers_of(row); })) add(content, {}, kBadPair, 0, row);
      for (const Answer& answer : answers) add(content, answer, row);
    }
    return content;
  }

 private:
  void add(TokenContent& content, const Answer& answer, const Row& row) const {
    ChatSample sample;
    int64_t prompt = 0;
    int32_t flags = answer.flags;
    const bool is_good = encode_row([&] {
      if (is_empty(answer.text)) {
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
  if (!options.skip_bad_rows) {
    const Row first = first_row(files, options);
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
                     .cache_options = cache_key(options, "pairs"),
                     .limits = {.labels = options.vocabulary_limit, .classes = kPairFlagLimit},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options));
  if (data->size() == 0) fail_without_pairs(options, data->counts());
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
                     .cache_options = cache_key(options, "answers with labels"),
                     .limits = {.labels = options.vocabulary_limit, .classes = kPairFlagLimit},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options);
  PairCounts counts;
  std::vector<int64_t> kept;
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < rows->size(); ++i) {
    const auto flags = static_cast<int32_t>(rows->get(i).label.value_or(0));
    count_flags(flags, counts);
    if ((flags & kNoPair) != 0) continue;
    kept.push_back(i);
    classes.push_back((flags & kDesirable) != 0 ? 1 : 0);
  }
  if (kept.empty()) fail_without_pairs(options, counts);
  TokenContent content;
  content.choices = 2;
  for (size_t i = 0; i < kept.size(); ++i) {
    const Example own = rows->get(kept[i]);
    const Example before = rows->get(kept[i == 0 ? kept.size() - 1 : i - 1]);
    for (size_t t = 0; t < own.labels.size(); ++t) {
      content.ids.push_back(static_cast<int32_t>(own.input_ids[t]));
      content.labels.push_back(own.labels[t]);
    }
    content.offsets.push_back(std::ssize(content.ids));
    add_mismatched(content, own, before, options.max_seq_length);
  }
  content.classes = classes;
  return std::make_shared<const AnswerDataset>(
      std::make_shared<const TokenDataset>(std::move(content)), counts,
      std::ranges::count(classes, 1));
}

}  // namespace finetune
