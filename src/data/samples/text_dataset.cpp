// SPDX-License-Identifier: MIT
#include "finetune/data/text_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/cache/token_cache.h"
#include "data/columns/json_row.h"
#include "data/columns/row_columns.h"
#include "data/columns/row_source.h"
#include "data/readers/file_format.h"
#include "data/readers/row_encoding.h"
#include "data/readers/white_space.h"
#include "data/samples/block_stream.h"
#include "data/streaming/file_stream.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

// datasets.map(batched=True) passes group_texts 1000 rows at a time, and it drops the incomplete
// block at the end of each 1000. Reproduced, so that the number of steps is the same.
constexpr int64_t kRowsOfGroup = 1000;

// Rows as consecutive tokens, split by lengths.
struct EncodedRows {
  TokenContent content;
  std::vector<int64_t> lengths;
  int64_t rows = 0;  // including blank ones
};

// The columns of each file, determined by its first row.
class Schemas {
 public:
  Schemas(const std::vector<std::string>& files, std::optional<std::string> text_column)
      : files_(files), text_column_(std::move(text_column)), of_file_(files.size()) {}

  void learn(const RowBlock& block) {
    RowSchema found;
    if (block.kind != FileKind::kText) {
      const Row row(block, block.rows.front());
      if (block.kind == FileKind::kTfRecord && row.columns().contains("masked_lm_positions")) {
        throw Error(ErrorKind::kData, row.position() +
                                          ": is an example of task pretraining, masked and filled "
                                          "up; give other tasks text or rows");
      }
      found = find_schema(row, text_column_);
      // The run reports the column of the first file.
      if (known_ && !found.tokens && found.text_column != last_.text_column) {
        log::info("text_column: '" + found.text_column + "' (guessed from " + block.name + ")");
      }
    }
    const bool same_kind =
        found.tokens == last_.tokens && found.labels == last_.labels && found.masks == last_.masks;
    if (known_ && !same_kind) {
      throw Error(ErrorKind::kData,
                  "'" + block.name + "' and '" + files_.front() +
                      "' hold different columns (text, or input_ids with or without "
                      "attention_mask and labels); give all files the same columns");
    }
    known_ = true;
    last_ = found;
    of_file_[block.file] = std::move(found);
  }

  [[nodiscard]] bool tokens() const { return last_.tokens; }
  // Requires: the file's first row was read. Thread-safe with learn() for other files.
  [[nodiscard]] const RowSchema& of(const RowBlock& block) const { return of_file_[block.file]; }

 private:
  const std::vector<std::string>& files_;
  std::optional<std::string> text_column_;
  bool known_ = false;
  RowSchema last_;
  std::vector<RowSchema> of_file_;
};

class RowEncoder {
 public:
  RowEncoder(const Tokenizer& tokenizer, const TextOptions& options, const Schemas& schemas)
      : tokenizer_(tokenizer), options_(options), schemas_(schemas) {}

  [[nodiscard]] EncodedRows encode(const RowBlock& block) const {
    EncodedRows result;
    result.rows = std::ssize(block.rows);
    for (const RowBlock::Row& row : block.rows) {
      const std::string position = block.position(row);
      if (block.kind == FileKind::kText) {
        check_utf8(block.view(row), position);
        add_line(result, block.view(row), row.ended, position);
        continue;
      }
      const RowSchema& schema = schemas_.of(block);
      nlohmann::ordered_json json = block.parse(row);
      if (schema.tokens) {
        add_tokens(result, tokens_of(json, schema, position, limits()));
      } else {
        add_text(result, text_of(json, schema, position), position);
      }
    }
    return result;
  }

 private:
  [[nodiscard]] TokenLimits limits() const {
    return {.vocabulary = options_.vocabulary_limit, .positions = options_.position_limit};
  }

  void add_line(EncodedRows& block, std::string_view line, bool ended,
                const std::string& position) const {
    const bool keeps_end = ended && options_.keep_linebreaks && !options_.line_by_line;
    keeps_end ? add_text(block, std::string(line) + '\n', position)
              : add_text(block, line, position);
  }

  void add_text(EncodedRows& block, std::string_view text, const std::string& position) const {
    if (options_.line_by_line && is_white_space(text)) return;
    std::vector<int32_t> ids = tokenizer_.encode(text);
    if (options_.line_by_line) {
      const int64_t room = options_.max_seq_length - tokenizer_.num_special_tokens_to_add();
      if (static_cast<int64_t>(ids.size()) > room) ids.resize(static_cast<size_t>(room));
    }
    ids = tokenizer_.add_special_tokens(ids);
    for (const int32_t id : ids) check_token(id, position, options_.vocabulary_limit);
    block.content.ids.insert(block.content.ids.end(), ids.begin(), ids.end());
    block.lengths.push_back(static_cast<int64_t>(ids.size()));
  }

  static void add_tokens(EncodedRows& block, const TokenRow& row) {
    TokenContent& content = block.content;
    content.ids.insert(content.ids.end(), row.ids.begin(), row.ids.end());
    content.labels.insert(content.labels.end(), row.labels.begin(), row.labels.end());
    content.masks.insert(content.masks.end(), row.mask.begin(), row.mask.end());
    block.lengths.push_back(static_cast<int64_t>(row.ids.size()));
  }

  const Tokenizer& tokenizer_;
  const TextOptions& options_;
  const Schemas& schemas_;
};

// Joins tokenised rows into samples, and passes them to the sink in blocks.
class SampleBuilder {
 public:
  SampleBuilder(const TextOptions& options, TokenSink& sink) : options_(options), sink_(sink) {}

  [[nodiscard]] bool is_full() const {
    return options_.max_samples && samples() >= *options_.max_samples;
  }
  [[nodiscard]] int64_t samples() const {
    return sink_.samples() + std::ssize(content_.offsets) - 1;
  }
  [[nodiscard]] const TokenContent& content() const { return content_; }
  // Returns the fraction of max_samples that was made; 0 if all samples are used.
  [[nodiscard]] double fraction_of_samples() const {
    if (!options_.max_samples) return 0.0;
    return static_cast<double>(samples()) / static_cast<double>(*options_.max_samples);
  }
  [[nodiscard]] int64_t largest_group() const { return largest_group_; }

  void add(const EncodedRows& block, bool grouped) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(content_.labels, block.content.labels);
    append(content_.masks, block.content.masks);
    auto row = block.content.ids.begin();
    for (const int64_t length : block.lengths) {
      content_.ids.insert(content_.ids.end(), row, row + length);
      row += length;
      if (!grouped) {
        content_.offsets.push_back(static_cast<int64_t>(content_.ids.size()));
      } else if (++rows_of_group_ == kRowsOfGroup) {
        rows_ += kRowsOfGroup;
        close_group();
        hand_on();
      }
    }
    if (grouped) return;
    rows_ += block.rows;
    hand_on();
  }

  void finish() {
    rows_ += rows_of_group_;
    close_group();
    hand_over();
  }

 private:
  void close_group() {
    rows_of_group_ = 0;
    const auto end = static_cast<int64_t>(content_.ids.size());
    largest_group_ = std::max(largest_group_, end - content_.offsets.back());
    while (content_.offsets.back() + options_.max_seq_length <= end) {
      content_.offsets.push_back(content_.offsets.back() + options_.max_seq_length);
    }
    content_.ids.resize(static_cast<size_t>(content_.offsets.back()));
  }

  void hand_on() {
    if (!is_full() && sink_.wants(std::ssize(content_.ids))) hand_over();
  }

  void hand_over() {
    if (is_full()) {
      content_.offsets.resize(static_cast<size_t>(*options_.max_samples - sink_.samples()) + 1);
    }
    const auto tokens = static_cast<size_t>(content_.offsets.back());
    content_.ids.resize(tokens);
    if (!content_.labels.empty()) content_.labels.resize(tokens);
    if (!content_.masks.empty()) content_.masks.resize(tokens);
    content_.ids.shrink_to_fit();
    content_.offsets.shrink_to_fit();
    sink_.take(std::move(content_), rows_, {});
    content_ = {};
    rows_ = 0;
  }

  const TextOptions& options_;
  TokenSink& sink_;
  TokenContent content_;
  int64_t rows_ = 0;  // number of rows whose samples are in content_
  int64_t rows_of_group_ = 0;
  int64_t largest_group_ = 0;
};

void check_options(const Tokenizer& tokenizer, const TextOptions& options) {
  const int64_t special = tokenizer.num_special_tokens_to_add();
  const int64_t least = options.line_by_line ? special + 1 : 1;
  if (options.max_seq_length < least) {
    throw Error(ErrorKind::kConfig, format_text("max_seq_length {} leaves no room for text beside "
                                                "the {} special tokens; raise it to at least {}",
                                                options.max_seq_length, special, least));
  }
  if (options.max_samples && *options.max_samples < 1) {
    throw Error(ErrorKind::kConfig, format_text("{}: at least one sample must be asked for, not {}",
                                                options.key, *options.max_samples));
  }
}

[[noreturn]] void fail_without_samples(const std::string& file, const TextOptions& options,
                                       int64_t largest_group) {
  const std::string where = options.key + ": '" + file + "'";
  if (options.line_by_line || largest_group == 0) {
    throw Error(ErrorKind::kData, where + " holds no text: every line of it is blank");
  }
  throw Error(ErrorKind::kData,
              format_text("{} has at most {} tokens in a run of {} lines, fewer than one block of "
                          "max_seq_length {}; lower max_seq_length or set line_by_line: true",
                          where, largest_group, kRowsOfGroup, options.max_seq_length));
}

void read_text(const std::vector<std::string>& files, const Tokenizer& tokenizer,
               const TextOptions& options, TokenSink& sink) {
  RowOptions rows;
  rows.key = options.key;
  rows.rows = options.rows;
  rows.replace_broken_utf8 = options.replace_broken_utf8;
  rows.reading = options.reading;
  rows.progress = options.progress;
  rows.rows.begin += sink.rows();
  RowSource source(files, rows);
  Schemas schemas(source.files(), options.text_column);
  source.on_first_row([&](const RowBlock& block) { schemas.learn(block); });
  const RowEncoder encoder(tokenizer, options, schemas);
  BlockStream<EncodedRows> stream(
      source, [&](const RowBlock& block) { return encoder.encode(block); }, options.threads);
  SampleBuilder builder(options, sink);
  EncodedRows block;
  while (!builder.is_full() && stream.next(block)) {
    builder.add(block, !options.line_by_line && !schemas.tokens());
    sink.check(builder.content(), std::max(source.fraction(), builder.fraction_of_samples()));
    interrupt::throw_if_requested("reading and tokenising " + options.key);
    if (options.progress) options.progress(source.fraction());
  }
  builder.finish();
  if (builder.samples() == 0) {
    fail_without_samples(source.files().front(), options, builder.largest_group());
  }
  if (options.progress) options.progress(1.0);
}

// The objects with which the chunks of a stream are made.
struct TextChunks {
  TextChunks(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
             const TextOptions& text_options)
      : files(paths),
        options(text_options),
        schemas(files, options.text_column),
        encoder(tokenizer, options, schemas) {
    options.max_samples.reset();  // a chunk has no limit
  }

  // Reads a group of rows, or a block of rows that are samples themselves.
  [[nodiscard]] bool read(RowSource& source, TokenContent& content) {
    MemorySink sink;
    SampleBuilder builder(options, sink);
    RowBlock block;
    int64_t rows = 0;
    bool is_grouped = true;
    while (is_grouped && rows < kRowsOfGroup) {
      if (!source.next(block, static_cast<size_t>(kRowsOfGroup - rows))) break;
      rows += std::ssize(block.rows);
      is_grouped = !options.line_by_line && !schemas.tokens();
      builder.add(encoder.encode(block), is_grouped);
    }
    builder.finish();
    largest_group = std::max(largest_group, builder.largest_group());
    content = sink.content();
    return rows > 0;
  }

  std::vector<std::string> files;
  TextOptions options;
  Schemas schemas;
  RowEncoder encoder;
  int64_t largest_group = 0;
};

// Returns the inputs of the tokens, except the files and the tokenizer, for the cache's key.
nlohmann::ordered_json cache_options(const TextOptions& options) {
  nlohmann::ordered_json key = {{"samples", options.line_by_line ? "lines" : "blocks"},
                                {"max_seq_length", options.max_seq_length},
                                {"max_samples", options.max_samples.value_or(-1)},
                                {"text_column", options.text_column.value_or("")},
                                {"vocabulary_limit", options.vocabulary_limit},
                                {"position_limit", options.position_limit},
                                {"replace_broken_utf8", options.replace_broken_utf8},
                                {"rows", {options.rows.begin, options.rows.end}}};
  if (options.keep_linebreaks) key["keep_linebreaks"] = true;
  add_reading(key, options.reading);
  return key;
}

// Whether the same text_column is found in the files without the key.
bool shows_text_column(const std::vector<std::string>& paths, const TextOptions& options) {
  RowOptions rows;
  rows.key = options.key;
  rows.replace_broken_utf8 = options.replace_broken_utf8;
  rows.reading = options.reading;
  try {
    return std::ranges::all_of(paths, [&](const std::string& path) {
      const ColumnSearch search{.task = RowTask::kText, .labels = LabelUse::kUnused};
      return find_columns({path}, rows, search).names.text_column == options.text_column;
    });
  } catch (const Error& error) {  // several columns are possible
    if (error.kind() != ErrorKind::kData && error.kind() != ErrorKind::kConfig) throw;
    return false;
  }
}

std::shared_ptr<const SequenceDataset> stream_text(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const TextOptions& options) {
  const std::vector<std::string> paths = expand_files(files, options.key);
  const auto chunks = std::make_shared<TextChunks>(paths, tokenizer, options);
  nlohmann::ordered_json key = cache_options(options);
  // The identity of the stream is the same whether the column is set or found.
  if (options.text_column && shows_text_column(paths, options)) key["text_column"] = "";
  StreamSource source{
      .files = paths,
      .rows = {},
      .options = std::move(key),
      .max_samples = options.max_samples,
      .on_first_row = [chunks](const RowBlock& block) { chunks->schemas.learn(block); },
      .read = [chunks](RowSource& rows,
                       TokenContent& content) { return chunks->read(rows, content); }};
  source.rows.key = options.key;
  source.rows.reading = options.reading;
  source.rows.replace_broken_utf8 = options.replace_broken_utf8;
  auto stream = make_sample_stream(std::move(source), *options.stream);
  if (stream->reach(1) == 0) fail_without_samples(paths.front(), options, chunks->largest_group);
  return stream;
}

}  // namespace

std::shared_ptr<const SequenceDataset> build_text_dataset(const std::vector<std::string>& files,
                                                          const Tokenizer& tokenizer,
                                                          const TextOptions& options) {
  check_options(tokenizer, options);
  if (options.stream) return stream_text(files, tokenizer, options);
  const nlohmann::ordered_json key = cache_options(options);
  const auto read = [&](TokenSink& sink) { read_text(files, tokenizer, options, sink); };
  const TokenSource source{
      .key = options.key,
      .files = files,
      .options = key,
      .tokenizer = tokenizer,
      .limits = {.ids = options.vocabulary_limit, .labels = options.vocabulary_limit},
      .read = read};
  if (auto data = read_cached(options.cache, source)) return data;
  return std::make_shared<const TokenDataset>(read_in_memory(options.cache, source));
}

}  // namespace finetune
