// SPDX-License-Identifier: MIT
#include "finetune/data/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/cache/block_hash.h"
#include "data/cache/token_cache.h"
#include "data/columns/json_row.h"
#include "data/columns/row_columns.h"
#include "data/pretraining/sentences.h"
#include "data/readers/row_encoding.h"
#include "data/readers/white_space.h"
#include "data/samples/block_stream.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

// The sentences of a block of rows; a document may begin before this block and continue after it.
struct SentenceBlock {
  size_t file = 0;
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;  // of sentences; kBreak: end of a document
  int64_t rows = 0;

  static constexpr int64_t kBreak = 0;
};

// The text column of each file, determined by its first row.
class TextColumns {
 public:
  TextColumns(size_t files, std::optional<std::string> wanted)
      : wanted_(std::move(wanted)), of_file_(files) {}

  void learn(const RowBlock& block) {
    if (block.kind == FileKind::kText) return;
    if (block.kind == FileKind::kTfRecord) {
      throw Error(ErrorKind::kData, "'" + block.name +
                                        "': TFRecord shards of task pretraining are read from any "
                                        "place, which packed ones do not allow; unpack it first");
    }
    const std::string position = block.position(block.rows.front());
    RowSchema schema = find_schema(Row(block, block.rows.front()), wanted_);
    if (schema.tokens) {
      throw Error(ErrorKind::kData,
                  position +
                      ": holds input_ids, but documents are made of text; name the column of "
                      "text with text_column, or give TFRecord shards");
    }
    // The run reports the column of the first file.
    if (!announced_.empty() && schema.text_column != announced_) {
      log::info("text_column: '" + schema.text_column + "' (guessed from " + block.name + ")");
    }
    announced_ = schema.text_column;
    of_file_[block.file] = std::move(schema);
  }

  [[nodiscard]] const RowSchema& of(const RowBlock& block) const { return of_file_[block.file]; }

 private:
  std::optional<std::string> wanted_;
  std::string announced_;
  std::vector<RowSchema> of_file_;
};

class SentenceEncoder {
 public:
  SentenceEncoder(const Tokenizer& tokenizer, const DocumentOptions& options,
                  const TextColumns& columns)
      : tokenizer_(tokenizer), options_(options), columns_(columns) {}

  [[nodiscard]] SentenceBlock encode(const RowBlock& rows) const {
    SentenceBlock block;
    block.file = rows.file;
    block.rows = std::ssize(rows.rows);
    for (const RowBlock::Row& row : rows.rows) {
      const std::string position = rows.position(row);
      if (rows.kind == FileKind::kText) {
        check_utf8(rows.view(row), position);
        const bool is_blank = is_white_space(rows.view(row));
        if (!is_blank) add_line(block, rows.view(row), position);
        if (is_blank || options_.lines_are_documents) end_document(block);
        continue;
      }
      nlohmann::ordered_json json = rows.parse(row);
      const std::string text = text_of(json, columns_.of(rows), position);
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        add_line(block, std::string_view(text).substr(begin, end - begin), position);
        begin = end + 1;
      }
      end_document(block);
    }
    return block;
  }

 private:
  static void end_document(SentenceBlock& block) { block.lengths.push_back(SentenceBlock::kBreak); }

  void add_line(SentenceBlock& block, std::string_view line, const std::string& position) const {
    for (const std::string_view sentence : split_sentences(line, options_.sentence_delimiters)) {
      const std::vector<int32_t> ids = tokenizer_.encode(sentence);
      for (const int32_t id : ids) check_token(id, position, options_.vocabulary_limit);
      block.ids.insert(block.ids.end(), ids.begin(), ids.end());
      add_length(block, static_cast<int64_t>(ids.size()));
    }
  }

  // Adds a sentence; one that is too long is split into parts of similar length.
  void add_length(SentenceBlock& block, int64_t length) const {
    const int64_t parts = (length + options_.longest_sentence - 1) / options_.longest_sentence;
    for (int64_t part = 0; part < parts; ++part) {
      block.lengths.push_back(length * (part + 1) / parts - length * part / parts);
    }
  }

  const Tokenizer& tokenizer_;
  const DocumentOptions& options_;
  const TextColumns& columns_;
};

// Writes sentences as samples of a cache. A sentence's class is 1 if it begins a document.
constexpr int32_t kBegins = 1;

class SentenceCollector {
 public:
  explicit SentenceCollector(TokenSink& sink) : sink_(sink) {}

  void add(const SentenceBlock& block) {
    if (block.file != file_) begins_ = true;
    file_ = block.file;
    content_.ids.insert(content_.ids.end(), block.ids.begin(), block.ids.end());
    for (const int64_t length : block.lengths) {
      if (length == SentenceBlock::kBreak) {
        begins_ = true;
        continue;
      }
      content_.offsets.push_back(content_.offsets.back() + length);
      content_.classes.push_back(begins_ ? kBegins : 0);
      begins_ = false;
    }
    rows_ += block.rows;
    // Blocks end at document boundaries, because a build that resumes from the next block would not
    // know that a document continues.
    if (begins_ && sink_.wants(std::ssize(content_.ids))) hand_over();
  }
  void finish() { hand_over(); }
  [[nodiscard]] const TokenContent& content() const { return content_; }

 private:
  void hand_over() { sink_.take(std::exchange(content_, {}), std::exchange(rows_, 0), {}); }

  TokenSink& sink_;
  TokenContent content_;
  int64_t rows_ = 0;
  size_t file_ = 0;
  bool begins_ = true;
};

void read_sentences(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                    const DocumentOptions& options, TokenSink& sink) {
  DocumentOptions rest = options;
  rest.rows.begin += sink.rows();
  RowSource source(files, rest);
  TextColumns columns(source.files().size(), options.text_column);
  source.on_first_row([&](const RowBlock& block) { columns.learn(block); });
  const SentenceEncoder encoder(tokenizer, options, columns);
  BlockStream<SentenceBlock> stream(
      source, [&](const RowBlock& block) { return encoder.encode(block); }, options.threads);
  SentenceCollector collector(sink);
  SentenceBlock block;
  while (stream.next(block)) {
    collector.add(block);
    sink.check(collector.content(), source.fraction());
    interrupt::throw_if_requested("reading and tokenising " + options.key);
    if (options.progress) options.progress(source.fraction());
  }
  collector.finish();
  if (sink.samples() == 0) {
    throw Error(ErrorKind::kData, options.key + ": '" + source.files().front() +
                                      "' holds no text: every line of it is blank");
  }
  if (options.progress) options.progress(1.0);
}

void add_document_begins(Documents& documents, int64_t first, std::span<const int32_t> classes) {
  for (size_t i = 0; i < classes.size(); ++i) {
    const int64_t sentence = first + static_cast<int64_t>(i);
    if (classes[i] == kBegins && sentence > 0) documents.documents.push_back(sentence);
  }
}

// Finds the documents of cached sentences. A document begins at a block's start or inside it; no
// document spans two blocks.
Documents documents_of(std::shared_ptr<const CachedTokens> cached, const ShowStep& show) {
  LongStep step({.phase = "find documents", .doing = "finding documents", .unit = "sentence"},
                cached->size(), show);
  Documents documents;
  int64_t sentences = 0;
  for (const TokenBlock& block : cached->blocks()) {
    add_document_begins(documents, sentences, block.classes());
    sentences += block.sequences();
    step.reach(sentences);
  }
  documents.documents.push_back(sentences);
  documents.kept = std::move(cached);
  return documents;
}

Documents documents_of(TokenContent content) {
  Documents documents{.ids = std::move(content.ids), .sentences = std::move(content.offsets)};
  add_document_begins(documents, 0, content.classes);
  documents.documents.push_back(std::ssize(documents.sentences) - 1);
  documents.ids.shrink_to_fit();
  documents.sentences.shrink_to_fit();
  return documents;
}

void add_number(Hasher& hasher, int64_t number) { hasher.update(&number, sizeof(number)); }

template <class Value>
void add_list(Hasher& hasher, const std::vector<Value>& values) {
  add_number(hasher, std::ssize(values));
  hasher.update(values.data(), values.size() * sizeof(Value));
}

}  // namespace

int64_t Documents::token_count() const { return kept ? kept->tokens() : std::ssize(ids); }

int64_t Documents::length(int64_t sentence) const {
  if (kept) return kept->length(sentence);
  const auto position = static_cast<size_t>(sentence);
  return sentences[position + 1] - sentences[position];
}

TokenSpan Documents::tokens(int64_t begin, int64_t end) const {
  if (kept) return kept->run(begin, end);
  const auto first = static_cast<size_t>(sentences[static_cast<size_t>(begin)]);
  const auto last = static_cast<size_t>(sentences[static_cast<size_t>(end)]);
  return std::span(ids).subspan(first, last - first);
}

void Documents::hash_into(Hasher& hasher, const ShowStep& show) const {
  if (kept) {
    LongStep step({.phase = "fingerprint", .doing = "reading tokenised data", .unit = "token"},
                  kept->tokens(), show);
    add_number(hasher, kept->tokens());
    for (const TokenBlock& block : kept->blocks()) {
      add_ids(hasher, block.ids());
      block.release();
      step.advance(block.tokens());
    }
    add_number(hasher, kept->size() + 1);
    int64_t tokens = 0;
    add_number(hasher, tokens);
    for (const TokenBlock& block : kept->blocks()) {
      tokens = add_offsets(hasher, block.ends(), tokens);
      block.release();
    }
  } else {
    add_list(hasher, ids);
    add_list(hasher, sentences);
  }
  add_list(hasher, documents);
}

int64_t Documents::memory_bytes() const {
  return std::ssize(ids) * static_cast<int64_t>(sizeof(int32_t)) +
         (std::ssize(sentences) + std::ssize(documents)) * static_cast<int64_t>(sizeof(int64_t));
}

Documents read_documents(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                         const DocumentOptions& options) {
  FT_CHECK(options.longest_sentence > 0, "sentences need room");
  nlohmann::ordered_json key = cache_options(options, "documents");
  key["text_column"] = options.text_column.value_or("");
  key["lines_are_documents"] = options.lines_are_documents;
  key["sentence_delimiters"] = options.sentence_delimiters;
  key["longest_sentence"] = options.longest_sentence;
  const auto read = [&](TokenSink& sink) { read_sentences(files, tokenizer, options, sink); };
  if (options.json_lines) {
    MemorySink sink;
    read(sink);
    return documents_of(sink.content());
  }
  const TokenSource source{.key = options.key,
                           .files = files,
                           .options = key,
                           .tokenizer = tokenizer,
                           .limits = {.ids = options.vocabulary_limit, .classes = 2},
                           .read = read};
  auto cached = read_cached(options.cache, source);
  if (cached) return documents_of(std::move(cached), options.cache.show);
  return documents_of(read_in_memory(options.cache, source));
}

}  // namespace finetune
