// SPDX-License-Identifier: MIT
#include "finetune/data/chat_dataset.h"

#include <algorithm>
#include <utility>

#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

constexpr auto kIgnored = static_cast<int32_t>(kIgnoredLabel);

// What happened to a row, stored as its class.
enum ChatFlag : int32_t {
  kTruncated = 1,
  kCutOff = 2,
  kNothingLearned = 4,
  kBad = 8,
  kSpecialTokens = 16,
  kDropsReasoning = 32,
  kPromptDiffers = 64,
  kDropsTools = 128,
  kLacksInstruction = 256,
  kLearnsEnd = 512,
  kEmptyAnswer = 1024,
  kFlagLimit = 2048,
};
constexpr int32_t kLeftOut = kCutOff | kNothingLearned | kBad;

struct TextTokens {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;  // empty ranges: tokens that the post-processor adds
};

// Plain text gets the post-processor's tokens, as TRL's does; rendered text has its own.
TextTokens tokenize(const Tokenizer& tokenizer, const std::string& text, bool is_plain,
                    const std::vector<chat::ByteRange>& literal = {}) {
  std::vector<TextRange> ranges;
  for (const chat::ByteRange& range : literal) {
    ranges.push_back({static_cast<int64_t>(range.begin), static_cast<int64_t>(range.end)});
  }
  Tokens tokens = tokenizer.encode_with_literals(text, ranges);
  if (!is_plain) return {std::move(tokens.ids), std::move(tokens.ranges)};
  ModelText combined = tokenizer.combine(tokens.ids, std::nullopt);
  TextTokens result{std::move(combined.ids), {}};
  for (const int32_t token : combined.tokens) {
    result.ranges.push_back(
        token == ModelText::kSpecial ? TextRange{} : tokens.ranges[static_cast<size_t>(token)]);
  }
  return result;
}

// A token is learned if any of its characters is.
std::vector<int32_t> labels_of(const TextTokens& tokens, const chat::RenderedChat& rendered) {
  const auto& learned = rendered.learned;
  const bool is_whole =
      learned.size() == 1 && learned[0] == chat::ByteRange{0, rendered.text.size()};
  if (is_whole) return tokens.ids;
  std::vector<int32_t> labels(tokens.ids.size(), kIgnored);
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto begin = static_cast<size_t>(tokens.ranges[i].begin);
    const auto end = static_cast<size_t>(tokens.ranges[i].end);
    const auto first = std::ranges::upper_bound(learned, begin, {}, &chat::ByteRange::end);
    if (first != learned.end() && first->begin < end) labels[i] = tokens.ids[i];
  }
  return labels;
}

// The first token of a sample is no target, because nothing comes before it.
bool has_target(const std::vector<int32_t>& labels) {
  return labels.size() > 1 && std::any_of(labels.begin() + 1, labels.end(),
                                          [](int32_t label) { return label != kIgnored; });
}

// Ignores the prompt, whose end is where its tokens differ from those with its completion.
void ignore_prompt(ChatSample& sample, const Tokenizer& tokenizer) {
  const std::vector<int32_t> prompt =
      tokenize(tokenizer, *sample.rendered.prompt, sample.rendered.is_plain).ids;
  const auto differs = std::ranges::mismatch(prompt, sample.ids).in1 - prompt.begin();
  std::fill_n(sample.labels.begin(), differs, kIgnored);
  sample.prompt_rest.assign(prompt.begin() + differs, prompt.end());
  if (!sample.prompt_rest.empty()) sample.flags |= kPromptDiffers;
}

class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatOptions& options)
      : tokenizer_(tokenizer), options_(options) {
    options_.progress = {};
  }

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    for (const RowBlock::Row& row : block.rows) add(content, block, row);
    return content;
  }

 private:
  [[nodiscard]] ChatSample sample_of(const Row& row) const {
    try {
      return make_chat_sample(row.columns(), tokenizer_, options_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      throw Error(error.kind(), row.position() + ": " + error.what());
    }
  }

  void add(TokenContent& content, const RowBlock& block, const RowBlock::Row& row) const {
    ChatSample sample;
    try {
      sample = sample_of(Row(block, row));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      if (!options_.skip_bad_rows) throw with_skip_advice(error);
      sample = {};
      sample.flags = kBad;
    }
    for (const int32_t id : sample.ids) {
      if (options_.vocabulary_limit == 0 || (id >= 0 && id < options_.vocabulary_limit)) continue;
      throw Error(ErrorKind::kData,
                  format_text("{}: the tokenizer gives the id {}, which is "
                              "outside the model's vocabulary of {} tokens",
                              block.position(row), id, options_.vocabulary_limit));
    }
    content.ids.insert(content.ids.end(), sample.ids.begin(), sample.ids.end());
    content.labels.insert(content.labels.end(), sample.labels.begin(), sample.labels.end());
    content.offsets.push_back(std::ssize(content.ids));
    content.classes.push_back(sample.flags);
  }

  const Tokenizer& tokenizer_;
  ChatOptions options_;
};

std::vector<int64_t> quantiles(std::vector<int64_t> lengths) {
  if (lengths.empty()) return {};
  std::ranges::sort(lengths);
  const auto at = [&](int64_t percent) {
    return lengths[static_cast<size_t>((std::ssize(lengths) - 1) * percent / 100)];
  };
  return {at(0), at(50), at(90), at(99), at(100)};
}

// Returns file and line of row `number` (from 1).
std::string position_of_row(const std::vector<std::string>& files, const ChatOptions& options,
                            int64_t number) {
  std::string position;
  for_each_row(files, options, [&](const Row& row) {
    if (--number > 0) return true;
    position = row.position();
    return false;
  });
  return position;
}

// Returns why row `number` (from 1) is left out as bad, with file and line.
std::string problem_of_row(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                           const ChatOptions& options, int64_t number) {
  std::string problem;
  for_each_row(files, options, [&](const Row& row) {
    if (--number > 0) return true;
    try {
      static_cast<void>(make_chat_sample(row.columns(), tokenizer, options));
    } catch (const Error& error) {
      problem = row.position() + ": " + error.what();
    }
    return false;
  });
  return problem;
}

[[noreturn]] void fail_without_targets(const std::vector<std::string>& files,
                                       const Tokenizer& tokenizer, const ChatOptions& options) {
  std::string shown;
  std::string where = options.key;
  for_each_row(files, options, [&](const Row& row) {
    try {
      const ChatSample sample = make_chat_sample(row.columns(), tokenizer, options);
      if ((sample.flags & kCutOff) != 0) {
        shown = format_text("the answers lie beyond max_seq_length {}; raise it",
                            options.max_seq_length);
      } else {
        const std::string& prompt = options.renderer->generation_prompt();
        const std::string& marker = options.renderer->response_template();
        if (!marker.empty() && sample.rendered.text.find(marker) == std::string::npos) {
          shown =
              format_text("response_template \"{}\" is not in the first row, which reads \"{}\"",
                          marker, sample.rendered.text.substr(0, 400));
          where = row.position();
          return false;
        }
        shown = format_text(
            "the first row reads \"{}\"; an answer was looked for after \"{}\" (the template's "
            "generation prompt), response_template or {{% generation %}}; check the roles of its "
            "messages, 'train' and 'weight'",
            sample.rendered.text.substr(0, 400), prompt);
      }
      where = row.position();
    } catch (const Error& error) {
      shown = error.what();
      where = row.position();
    }
    return false;
  });
  throw Error(ErrorKind::kConfig, where + ": no row has anything to learn: " + shown);
}

// A template that refuses a conversation may be another model's.
chat::RenderedChat render_conversation(const chat::Conversation& conversation,
                                       const chat::ChatRenderer& renderer) {
  try {
    return renderer.render(conversation);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kData || conversation.messages.empty()) throw;
    throw Error(error.kind(),
                "the chat template refuses the conversation: " + std::string(error.what()) +
                    "; name another with chat_template_path, correct the row");
  }
}

}  // namespace

ChatSample make_chat_sample(const Json& row, const Tokenizer& tokenizer,
                            const ChatOptions& options) {
  ChatSample sample;
  const chat::Conversation conversation = chat::read_conversation(row, options.names);
  sample.rendered = render_conversation(conversation, *options.renderer);
  if (chat::has_empty_answer(conversation)) sample.flags |= kEmptyAnswer;
  const chat::RenderedChat& rendered = sample.rendered;
  if (rendered.drops_reasoning) sample.flags |= kDropsReasoning;
  if (rendered.drops_tools) sample.flags |= kDropsTools;
  if (rendered.lacks_instruction) sample.flags |= kLacksInstruction;
  if (rendered.has_special_tokens) sample.flags |= kSpecialTokens;
  const bool has_literals = options.special_tokens_as_text && rendered.has_special_tokens;
  TextTokens tokens =
      tokenize(tokenizer, rendered.text, rendered.is_plain,
               has_literals ? rendered.from_messages : std::vector<chat::ByteRange>());
  sample.labels = labels_of(tokens, rendered);
  sample.ids = std::move(tokens.ids);
  if (options.completion_only && rendered.prompt) ignore_prompt(sample, tokenizer);
  if (!has_target(sample.labels)) sample.flags |= kNothingLearned;
  const std::string& stop = options.renderer->stop_token();
  const auto end = stop.empty() ? std::nullopt : tokenizer.token_to_id(stop);
  if (end && std::ranges::find(sample.labels, static_cast<int32_t>(*end)) != sample.labels.end()) {
    sample.flags |= kLearnsEnd;
  }
  if (options.truncates && std::ssize(sample.ids) > options.max_seq_length) {
    const auto length = static_cast<size_t>(options.max_seq_length);
    sample.ids.resize(length);
    sample.labels.resize(length);
    sample.flags |= kTruncated;
    if (!has_target(sample.labels) && (sample.flags & kNothingLearned) == 0)
      sample.flags |= kCutOff;
  }
  return sample;
}

ChatDataset::ChatDataset(std::shared_ptr<const SequenceDataset> rows) : KeptSamples(rows) {
  std::vector<int64_t> lengths;
  counts_.rows = rows->size();
  for (int64_t i = 0; i < rows->size(); ++i) {
    const Example row = rows->get(i);
    const auto flags = static_cast<int32_t>(row.label.value_or(0));
    const auto count = [&](int64_t& number, int32_t flag) {
      number += (flags & flag) != 0 ? 1 : 0;
    };
    count(counts_.cut_off, kCutOff);
    count(counts_.nothing_learned, kNothingLearned);
    count(counts_.bad, kBad);
    if (counts_.bad == 1 && counts_.first_bad == 0) counts_.first_bad = i + 1;
    if ((flags & kLeftOut) != 0) {
      if (counts_.first_left_out == 0) counts_.first_left_out = i + 1;
      continue;
    }
    count(counts_.truncated, kTruncated);
    count(counts_.special_tokens, kSpecialTokens);
    count(counts_.drops_reasoning, kDropsReasoning);
    count(counts_.drops_tools, kDropsTools);
    count(counts_.lacks_instruction, kLacksInstruction);
    count(counts_.learns_end, kLearnsEnd);
    count(counts_.empty_answers, kEmptyAnswer);
    count(counts_.prompt_differs, kPromptDiffers);
    keep(i);
    lengths.push_back(std::ssize(row.labels));
    counts_.tokens += lengths.back();
    counts_.learned += std::count_if(row.labels.begin() + 1, row.labels.end(),
                                     [](int32_t label) { return label != kIgnored; });
  }
  counts_.samples = size();
  counts_.lengths = quantiles(std::move(lengths));
}

std::shared_ptr<const SequenceDataset> wrapped(const SequenceDataset& data, int64_t length) {
  TokenContent content;
  const auto end_sample = [&] {
    const auto begin = static_cast<size_t>(content.offsets.back());
    if (has_target({content.labels.begin() + content.offsets.back(), content.labels.end()})) {
      content.offsets.push_back(std::ssize(content.ids));
    } else {
      content.ids.resize(begin);
      content.labels.resize(begin);
    }
  };
  for (int64_t i = 0; i < data.size(); ++i) {
    const Example sample = data.get(i);
    for (size_t token = 0; token < sample.labels.size(); ++token) {
      content.ids.push_back(sample.input_ids[token]);
      content.labels.push_back(sample.labels[token]);
      if (std::ssize(content.ids) - content.offsets.back() == length) end_sample();
    }
  }
  end_sample();
  return std::make_shared<const TokenDataset>(std::move(content));
}

std::shared_ptr<const ChatDataset> build_chat_dataset(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const ChatOptions& options) {
  FT_CHECK(options.renderer != nullptr, "chat rows need a renderer");
  check_max_samples(options);
  const auto encoder = std::make_shared<const ChatEncoder>(tokenizer, options);
  Json key = cache_options(options, "chat");
  key["renderer"] = options.renderer_identity;
  key["completion_only"] = options.completion_only;
  const chat::ConversationNames& names = options.names;
  key["names"] = {names.messages, names.system,      names.tools,     names.role,
                  names.content,  names.user,        names.assistant, names.observation,
                  names.function, names.system_role, names.prompt,    names.query,
                  names.response, names.history};
  key["truncates"] = options.truncates;
  key["skip_bad_rows"] = options.skip_bad_rows;
  key["special_tokens_as_text"] = options.special_tokens_as_text;
  auto data = std::make_shared<ChatDataset>(
      build_samples({.files = files,
                     .tokenizer = tokenizer,
                     .cache_options = std::move(key),
                     .limits = {.labels = options.vocabulary_limit, .classes = kFlagLimit},
                     .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
                    options));
  if (data->size() == 0) fail_without_targets(files, tokenizer, options);
  ChatOptions quiet = options;
  quiet.progress = {};
  if (const int64_t first = data->counts().first_left_out; first > 0) {
    data->set_first_left_out(position_of_row(files, quiet, first));
  }
  if (const int64_t first = data->counts().first_bad; first > 0) {
    data->set_first_problem(problem_of_row(files, tokenizer, quiet, first));
  }
  return data;
}

}  // namespace finetune
