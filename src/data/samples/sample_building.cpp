// SPDX-License-Identifier: MIT
#include "data/samples/sample_building.h"

#include <algorithm>
#include <utility>

#include "data/cache/token_cache.h"
#include "data/columns/json_row.h"
#include "data/readers/file_format.h"
#include "data/streaming/file_stream.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/tokenizer/truncation.h"

namespace finetune {

SequenceMaker::SequenceMaker(const Tokenizer& tokenizer, const SampleOptions& options, bool pair)
    : tokenizer_(tokenizer),
      room_(options.max_seq_length - tokenizer.num_special_tokens_to_add(pair)),
      vocabulary_(options.vocabulary_limit),
      truncate_left_(tokenizer.sides().truncate_left) {
  const int64_t least = pair ? 2 : 1;
  if (room_ >= least) return;
  const int64_t special = options.max_seq_length - room_;
  throw Error(ErrorKind::kConfig, format_text("max_seq_length {} leaves no room for text beside "
                                              "the {} special tokens; raise it to at least {}",
                                              options.max_seq_length, special, special + least));
}

std::span<const int32_t> SequenceMaker::cut(std::span<const int32_t> ids, int64_t length) const {
  const auto size = static_cast<size_t>(length);
  return truncate_left_ ? ids.last(size) : ids.first(size);
}

ModelText SequenceMaker::make(std::span<const int32_t> text) const {
  const int64_t length = std::min(room_, static_cast<int64_t>(text.size()));
  return tokenizer_.combine(cut(text, length), std::nullopt);
}

ModelText SequenceMaker::make(std::span<const int32_t> first,
                              std::span<const int32_t> second) const {
  const PairLengths lengths{.first = static_cast<int64_t>(first.size()),
                            .second = static_cast<int64_t>(second.size())};
  const auto kept = truncate(lengths, room_, Truncation::kLongestFirst);
  FT_CHECK(kept.has_value(), "both texts may be cut");
  return tokenizer_.combine(cut(first, kept->first), cut(second, kept->second));
}

void SequenceMaker::add(TokenContent& content, const ModelText& text,
                        const std::string& position) const {
  add_ids(content, text.ids, position, vocabulary_);
  content.types.insert(content.types.end(), text.token_types.begin(), text.token_types.end());
}

void add_ids(TokenContent& content, std::span<const int32_t> ids, const std::string& position,
             int64_t vocabulary) {
  for (const int32_t id : ids) check_token(id, position, vocabulary);
  content.ids.insert(content.ids.end(), ids.begin(), ids.end());
  content.offsets.push_back(std::ssize(content.ids));
}

Error with_skip_advice(const Error& error) {
  const std::string why = error.what();
  return {error.kind(), format_text("{}{}, or set skip_bad_rows: true to leave such rows out", why,
                                    why.ends_with("correct the row") ? "" : "; correct the row")};
}

void append(TokenContent& to, const TokenContent& from) {
  const auto add = [](auto& list, const auto& more) {
    list.insert(list.end(), more.begin(), more.end());
  };
  const auto shift = static_cast<int64_t>(to.ids.size());
  for (size_t i = 1; i < from.offsets.size(); ++i) to.offsets.push_back(shift + from.offsets[i]);
  add(to.ids, from.ids);
  add(to.labels, from.labels);
  add(to.masks, from.masks);
  add(to.types, from.types);
  add(to.classes, from.classes);
  add(to.values, from.values);
  add(to.answers, from.answers);
  add(to.words, from.words);
  add(to.word_counts, from.word_counts);
  to.choices = from.choices;
  to.outputs = from.outputs;
}

int64_t samples_of(const TokenContent& content) {
  return (static_cast<int64_t>(content.offsets.size()) - 1) / content.choices;
}

void keep_first(TokenContent& content, int64_t samples) {
  if (samples >= samples_of(content)) return;
  content.offsets.resize(static_cast<size_t>(samples * content.choices) + 1);
  const auto tokens = static_cast<size_t>(content.offsets.back());
  const auto cut = [](auto& list, int64_t size) {
    if (!list.empty()) list.resize(static_cast<size_t>(size));
  };
  content.ids.resize(tokens);
  cut(content.labels, content.offsets.back());
  cut(content.masks, content.offsets.back());
  cut(content.types, content.offsets.back());
  cut(content.classes, samples);
  cut(content.values, samples * content.outputs);
  cut(content.answers, samples);
  cut(content.words, content.offsets.back());
  cut(content.word_counts, samples);
}

void drop_plain_types(TokenContent& content) {
  if (std::ranges::all_of(content.types, [](uint8_t type) { return type == 0; })) {
    content.types = {};
  }
}

void check_max_samples(const SampleOptions& options) {
  if (options.max_samples && *options.max_samples < 1) {
    throw Error(ErrorKind::kConfig, format_text("{}: at least one sample must be asked for, not {}",
                                                options.key, *options.max_samples));
  }
}

void fail_without_rows(const SampleOptions& options) {
  throw Error(ErrorKind::kData,
              options.key +
                  ": no row is left to make a sample of; check the files, raise max_seq_length "
                  "where longer rows are left out, or change validation_split_percentage");
}

nlohmann::ordered_json cache_options(const SampleOptions& options, const std::string& task) {
  nlohmann::ordered_json key = {{"samples", task},
                                {"max_seq_length", options.max_seq_length},
                                {"max_samples", options.max_samples.value_or(-1)},
                                {"vocabulary_limit", options.vocabulary_limit},
                                {"labels_required", options.labels_required},
                                {"replace_broken_utf8", options.replace_broken_utf8},
                                {"rows", {options.rows.begin, options.rows.end}}};
  add_reading(key, options.reading);
  if (const auto& share = options.share) {
    key["share"] = {share->total, share->seed, share->positions.begin, share->positions.end};
  }
  return key;
}

namespace {

void read_samples(const RowSamples& samples, const SampleOptions& options, TokenSink& sink) {
  struct Encoded {
    TokenContent content;
    int64_t rows = 0;
  };
  const int64_t most = options.max_samples.value_or(INT64_MAX);
  SampleOptions rest = options;
  rest.rows.begin += sink.rows();
  TokenContent content;
  int64_t rows = 0;
  rest.progress = [&](double fraction) {
    const double of_samples =
        options.max_samples ? static_cast<double>(samples_of(content)) / static_cast<double>(most)
                            : 0.0;
    sink.check(content, std::max(fraction, of_samples));
    if (options.progress) options.progress(fraction);
  };
  const auto is_full = [&] { return sink.samples() + samples_of(content) >= most; };
  const auto encode = [&](const RowBlock& block) {
    return Encoded{samples.encode(block), std::ssize(block.rows)};
  };
  const auto add = [&](Encoded& block) {
    append(content, block.content);
    rows += block.rows;
    if (is_full()) return false;
    if (sink.wants(std::ssize(content.ids))) {
      sink.take(std::exchange(content, {}), std::exchange(rows, 0), {});
    }
    return true;
  };
  if (!is_full()) encode_rows<Encoded>(samples.files, rest, encode, add);
  if (sink.samples() + samples_of(content) == 0) fail_without_rows(options);
  keep_first(content, most - sink.samples());
  sink.take(std::move(content), rows, {});
}

std::shared_ptr<const SequenceDataset> stream_samples(const RowSamples& samples,
                                                      const SampleOptions& options) {
  StreamSource source{.files = samples.files,
                      .rows = options,
                      .options = samples.cache_options,
                      .max_samples = options.max_samples,
                      .read = [encode = samples.encode](RowSource& rows, TokenContent& content) {
                        RowBlock block;
                        if (!rows.next(block)) return false;
                        content = encode(block);
                        drop_plain_types(content);
                        return true;
                      }};
  source.rows.progress = {};
  auto stream = make_sample_stream(std::move(source), *options.stream);
  if (stream->reach(1) == 0) fail_without_rows(options);
  return stream;
}

}  // namespace

std::shared_ptr<const SequenceDataset> build_samples(const RowSamples& samples,
                                                     const SampleOptions& options) {
  check_max_samples(options);
  if (options.stream) return stream_samples(samples, options);
  const auto read = [&](TokenSink& sink) { read_samples(samples, options, sink); };
  TokenSource source{.key = options.key,
                     .files = samples.files,
                     .options = samples.cache_options,
                     .tokenizer = samples.tokenizer,
                     .limits = samples.limits,
                     .read = read};
  source.limits.ids = options.vocabulary_limit;
  TokenContent content;
  if (options.json_lines) {
    MemorySink sink;
    read(sink);
    content = sink.content();
  } else {
    if (auto data = read_cached(options.cache, source)) return data;
    content = read_in_memory(options.cache, source);
  }
  drop_plain_types(content);
  // A column that only some samples have can be neither target nor evaluated.
  const int64_t count = samples_of(content);
  if (std::ssize(content.values) != count * content.outputs) content.values = {};
  if (std::ssize(content.answers) != count) content.answers = {};
  return std::make_shared<const TokenDataset>(std::move(content));
}

}  // namespace finetune
