// SPDX-License-Identifier: MIT
#include "finetune/data/question_answering_dataset.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "data/cache/token_cache.h"
#include "data/samples/question_rows.h"
#include "data/samples/question_store.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Content = QuestionAnsweringDataset::Content;
using Window = QuestionAnsweringDataset::Window;

// Splits the context's tokens like the tokenizers package splits overflowing text: parts of
// `length` tokens, of which `stride` are also in the previous part.
std::vector<std::pair<int64_t, int64_t>> cut_windows(int64_t tokens, int64_t length, int64_t stride,
                                                     bool from_the_end) {
  if (tokens <= length) return {{0, tokens}};
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t skipped = 0;; skipped += length - stride) {
    const int64_t end = std::min(tokens, skipped + length);
    parts.push_back(from_the_end ? std::pair(tokens - end, tokens - skipped)
                                 : std::pair(skipped, end));
    if (end == tokens) return parts;
  }
}

// Finds the answer's tokens like run_qa: the last token that begins at or before the answer's
// start, and the first that ends at or after its end. `ranges` are those of the window's part of
// the context. If the answer begins in the last token, run_qa's search continues into the special
// tokens; this one does not.
Example::Answer find_answer(std::span<const TextRange> ranges, int64_t first_token,
                            const TextRange& answer, int64_t nowhere) {
  if (ranges.empty() || ranges.front().begin > answer.begin || ranges.back().end < answer.end) {
    return {.start = nowhere, .end = nowhere};
  }
  const auto size = static_cast<int64_t>(ranges.size());
  const auto at = [&](int64_t token) { return ranges[static_cast<size_t>(token)]; };
  int64_t start = 0;
  while (start + 1 < size && at(start + 1).begin <= answer.begin) ++start;
  int64_t end = size - 1;
  while (end > 0 && at(end - 1).end >= answer.end) --end;
  return {.start = first_token + start, .end = first_token + end};
}

class WindowEncoder {
 public:
  WindowEncoder(const Tokenizer& tokenizer, const QuestionAnsweringOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        context_first_(tokenizer.sides().pad_left),
        cut_left_(tokenizer.sides().truncate_left),
        maker_(tokenizer, options, true),
        reader_(options) {}

  [[nodiscard]] Content encode(const RowBlock& block) const {
    Content content;
    for (const RowBlock::Row& position : block.rows) {
      for (AskedQuestion& question : reader_.read(Row(block, position))) add(content, question);
    }
    return content;
  }

 private:
  void add(Content& content, AskedQuestion& asked) const {
    const std::vector<int32_t> question = tokenizer_.encode(asked.question.question);
    const Tokens context = tokenizer_.encode_with_ranges(asked.question.context);
    const auto tokens = static_cast<int64_t>(context.ids.size());
    if (tokens == 0) fail(asked, "the context has no token");
    const int64_t room = room_for_context(static_cast<int64_t>(question.size()), tokens, asked);
    for (const auto& [begin, end] : cut_windows(tokens, room, options_.doc_stride, cut_left_)) {
      const auto from = static_cast<size_t>(begin);
      const auto size = static_cast<size_t>(end - begin);
      const std::span ids = std::span(context.ids).subspan(from, size);
      const ModelText text =
          context_first_ ? tokenizer_.combine(ids, question) : tokenizer_.combine(question, ids);
      maker_.add(content.tokens, text, asked.position);
      const int64_t first = first_of_context(text);
      if (asked.answer_known) {
        const int64_t cls = cls_position(text.ids);
        const std::span ranges = std::span(context.ranges).subspan(from, size);
        content.tokens.answers.push_back(asked.answer
                                             ? find_answer(ranges, first, *asked.answer, cls)
                                             : Example::Answer{.start = cls, .end = cls});
      }
      if (!options_.keep_questions) continue;
      content.windows.push_back(
          {.question = static_cast<int64_t>(content.questions.size()),
           .first_token = first,
           .tokens = end - begin,
           .first_context = static_cast<int64_t>(content.ranges.size()) + begin});
    }
    if (!options_.keep_questions) return;
    content.ranges.insert(content.ranges.end(), context.ranges.begin(), context.ranges.end());
    content.questions.push_back(std::move(asked.question));
  }

  [[noreturn]] static void fail(const AskedQuestion& asked, const std::string& what) {
    throw Error(ErrorKind::kData, asked.position + ": " + what);
  }

  [[nodiscard]] int64_t room_for_context(int64_t question, int64_t context,
                                         const AskedQuestion& asked) const {
    const int64_t special = tokenizer_.num_special_tokens_to_add(true);
    const int64_t room = options_.max_seq_length - special - question;
    const bool fits = context <= room;
    if (fits || room > options_.doc_stride) return room;
    fail(asked, format_text("the question has {} tokens, so that max_seq_length {} leaves {} for "
                            "the context, which must be more than doc_stride {}; raise "
                            "max_seq_length, lower doc_stride or shorten the question",
                            question, options_.max_seq_length, std::max<int64_t>(room, 0),
                            options_.doc_stride));
  }

  [[nodiscard]] int64_t first_of_context(const ModelText& text) const {
    const auto found = std::ranges::find(text.texts, context_first_ ? 0 : 1);
    FT_CHECK(found != text.texts.end(), "a window holds some of its context");
    return found - text.texts.begin();
  }

  // Returns the target of windows without the answer: CLS, else BOS, else the first token.
  [[nodiscard]] int64_t cls_position(const std::vector<int32_t>& ids) const {
    const SpecialTokens& special = tokenizer_.special_tokens();
    for (const auto& token : {special.cls, special.bos}) {
      if (!token || token->id < 0) continue;
      const auto found = std::ranges::find(ids, token->id);
      if (found != ids.end()) return found - ids.begin();
    }
    return 0;
  }

  const Tokenizer& tokenizer_;
  const QuestionAnsweringOptions& options_;
  bool context_first_;
  bool cut_left_;
  SequenceMaker maker_;
  QuestionReader reader_;
};

// Appends the windows of a block of rows.
void append(Content& to, Content& from) {
  append(to.tokens, from.tokens);
  const auto questions = static_cast<int64_t>(to.questions.size());
  const auto ranges = static_cast<int64_t>(to.ranges.size());
  for (Window window : from.windows) {
    window.question += questions;
    window.first_context += ranges;
    to.windows.push_back(window);
  }
  to.ranges.insert(to.ranges.end(), from.ranges.begin(), from.ranges.end());
  std::ranges::move(from.questions, std::back_inserter(to.questions));
}

nlohmann::ordered_json cache_key(const QuestionAnsweringOptions& options) {
  nlohmann::ordered_json key = cache_options(options, "question answering");
  key["columns"] = {options.question_column.value_or(""), options.context_column.value_or(""),
                    options.answer_column.value_or("")};
  key["doc_stride"] = options.doc_stride;
  key["without_answer"] = options.without_answer;
  if (options.keep_questions) key["questions"] = true;
  return key;
}

// Builds only the windows, without keeping the questions.
std::shared_ptr<const QuestionAnsweringDataset> build_windows(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const QuestionAnsweringOptions& options, const WindowEncoder& encoder) {
  auto samples =
      build_samples({.files = files,
                     .tokenizer = tokenizer,
                     .cache_options = cache_key(options),
                     .limits = {},
                     .encode = [&](const RowBlock& block) { return encoder.encode(block).tokens; }},
                    options);
  return std::make_shared<const QuestionAnsweringDataset>(std::move(samples),
                                                          QuestionAnsweringDataset::Content{});
}

void name_questions(std::vector<Question>& questions, const std::string& key) {
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (questions[i].id.empty()) questions[i].id = std::to_string(i);
  }
  for (const Question& question : questions) {
    if (seen.insert(question.id).second) continue;
    throw Error(ErrorKind::kData,
                key + ": the id '" + question.id + "' is there twice; ids must be unique");
  }
}

// Returns the size of a question in memory with its context, of which each question has a copy.
int64_t bytes_of_question(const Question& question) {
  auto bytes = static_cast<int64_t>(sizeof(Question) + question.id.size() +
                                    question.question.size() + question.context.size());
  for (const std::string& answer : question.answers) {
    bytes += static_cast<int64_t>(sizeof(answer) + answer.size());
  }
  return bytes;
}

struct ReadQuestions {
  Content content = {};
  int64_t rows = 0;
  int64_t question_bytes = 0;

  [[nodiscard]] int64_t bytes() const {
    return memory_bytes(content.tokens) + question_bytes +
           static_cast<int64_t>(content.windows.size() * sizeof(Window) +
                                content.ranges.size() * sizeof(TextRange));
  }
};

ReadQuestions read_questions(const std::vector<std::string>& files,
                             const QuestionAnsweringOptions& options, const WindowEncoder& encoder,
                             const MemoryLimit* limit) {
  const int64_t most = options.max_samples.value_or(INT64_MAX);
  ReadQuestions read;
  Content& content = read.content;
  QuestionAnsweringOptions watched = options;
  watched.progress = [&](double fraction) {
    const auto questions = static_cast<double>(content.questions.size());
    if (limit != nullptr) {
      limit->check(read.bytes(), std::max(fraction, questions / static_cast<double>(most)));
    }
    if (options.progress) options.progress(fraction);
  };
  encode_rows<ReadQuestions>(
      files, watched,
      [&](const RowBlock& block) {
        return ReadQuestions{.content = encoder.encode(block), .rows = std::ssize(block.rows)};
      },
      [&](ReadQuestions& block) {
        for (const Question& question : block.content.questions) {
          read.question_bytes += bytes_of_question(question);
        }
        append(content, block.content);
        read.rows += block.rows;
        return std::ssize(content.questions) < most;
      });
  if (samples_of(content.tokens) == 0) fail_without_rows(options);
  // A column of answers that only some questions have is dropped: it can be neither target nor
  // evaluated.
  const auto windows = static_cast<size_t>(samples_of(content.tokens));
  if (content.tokens.answers.size() < windows) content.tokens.answers = {};
  keep_first(content.tokens, most);
  if (content.windows.size() > static_cast<size_t>(samples_of(content.tokens))) {
    content.windows.resize(static_cast<size_t>(samples_of(content.tokens)));
  }
  if (static_cast<int64_t>(content.questions.size()) > most) {
    content.questions.resize(static_cast<size_t>(most));
  }
  name_questions(content.questions, options.key);
  drop_plain_types(content.tokens);
  return read;
}

// Stores a single block, so that a cache contains all questions or none.
void store_questions(ReadQuestions read, TokenSink& sink) {
  const std::string questions = encode_questions(read.content);
  sink.take(std::move(read.content.tokens), read.rows, questions);
}

}  // namespace

QuestionAnsweringDataset::QuestionAnsweringDataset(Content content)
    : SampleView(std::make_shared<const TokenDataset>(std::move(content.tokens))),
      questions_(std::move(content.questions)),
      windows_(std::move(content.windows)),
      ranges_(std::move(content.ranges)) {
  FT_CHECK(windows_.empty() || std::ssize(windows_) == size(), "every sample has its window");
}

QuestionAnsweringDataset::QuestionAnsweringDataset(std::shared_ptr<const SequenceDataset> samples,
                                                   Content kept)
    : SampleView(std::move(samples)),
      questions_(std::move(kept.questions)),
      windows_(std::move(kept.windows)),
      ranges_(std::move(kept.ranges)) {
  FT_CHECK(windows_.empty() || std::ssize(windows_) == size(), "every sample has its window");
}

int64_t QuestionAnsweringDataset::question_of(int64_t index) const {
  FT_CHECK(index >= 0 && index < static_cast<int64_t>(windows_.size()), "no such window is kept");
  return windows_[static_cast<size_t>(index)].question;
}

std::optional<TextRange> QuestionAnsweringDataset::range(int64_t index, int64_t token) const {
  FT_CHECK(index >= 0 && index < static_cast<int64_t>(windows_.size()), "no such window is kept");
  const Window& window = windows_[static_cast<size_t>(index)];
  const int64_t position = token - window.first_token;
  if (position < 0 || position >= window.tokens) return std::nullopt;
  return ranges_[static_cast<size_t>(window.first_context + position)];
}

std::shared_ptr<const QuestionAnsweringDataset> build_question_answering_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const QuestionAnsweringOptions& options) {
  check_max_samples(options);
  if (options.doc_stride < 0) {
    throw Error(ErrorKind::kConfig,
                format_text("doc_stride must not be negative, but is {}", options.doc_stride));
  }
  const WindowEncoder encoder(tokenizer, options);
  if (!options.keep_questions) return build_windows(files, tokenizer, options, encoder);
  const nlohmann::ordered_json key = cache_key(options);
  Content kept;
  TokenSource source{
      .key = options.key,
      .files = files,
      .options = key,
      .tokenizer = tokenizer,
      .limits = {.ids = options.vocabulary_limit},
      .read =
          [&](TokenSink& sink) {
            if (sink.rows() == 0)
              store_questions(read_questions(files, options, encoder, nullptr), sink);
          },
      .accept =
          [&](const CachedTokens& samples) {
            if (samples.blocks().size() != 1)
              throw Error(ErrorKind::kData, "questions are missing");
            kept = decode_questions(samples.blocks().front().extra(), samples.size());
          }};
  Content content;
  const auto read = [&](const MemoryLimit* limit) {
    content = read_questions(files, options, encoder, limit).content;
  };
  if (options.json_lines) {
    read(nullptr);
  } else {
    if (auto samples = read_cached(options.cache, source)) {
      return std::make_shared<const QuestionAnsweringDataset>(std::move(samples), std::move(kept));
    }
    const MemoryLimit limit(options.cache, options.key);
    read_unchanged(source, [&] { read(&limit); });
  }
  return std::make_shared<const QuestionAnsweringDataset>(std::move(content));
}

}  // namespace finetune
