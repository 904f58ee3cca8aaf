// SPDX-License-Identifier: MIT
#include "tokenizer/training/sentencepiece_training.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <random>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "tokenizer/training/text_lines.h"

namespace finetune::tokenizer {
namespace {

using Type = SentencePieceOptions::Type;

// Unigram's sums depend on the number of parts they are split into: spm_train's default, whatever
// the number of processors. BPE uses one thread, because its ties depend on memory addresses, which
// more threads would change.
constexpr const char* kUnigramParts = "16";
constexpr const char* kBpeParts = "1";

// Passes lines to the library, which copies each.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(TextLines& lines) : lines_(&lines), done_(!lines.next()) {}
  explicit Sentences(const std::vector<std::string>& sample)
      : sample_(&sample), done_(sample.empty()) {}

  [[nodiscard]] bool done() const override { return done_; }
  void Next() override { done_ = lines_ != nullptr ? !lines_->next() : ++at_ == sample_->size(); }
  [[nodiscard]] const std::string& value() const override {
    return lines_ != nullptr ? lines_->line() : (*sample_)[at_];
  }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  TextLines* lines_ = nullptr;
  const std::vector<std::string>* sample_ = nullptr;
  size_t at_ = 0;
  bool done_;
};

// Draws spm_train's sample, with a seed that can be chosen.
std::vector<std::string> take_sample(TextLines& lines, size_t size, uint64_t seed) {
  std::vector<std::string> sample;
  std::mt19937 generator(static_cast<std::mt19937::result_type>(seed));
  for (uint64_t seen = 1; lines.next(); ++seen) {
    if (sample.size() < size) {
      sample.push_back(lines.line());
      continue;
    }
    const uint64_t position = std::uniform_int_distribution<uint64_t>(0, seen - 1)(generator);
    if (position < size) sample[position] = lines.line();
  }
  return sample;
}

// Formats a list for the library.
std::string quoted_list(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) {
    if (!list.empty()) list += ',';
    list += '"';
    for (const char c : item) list.append(c == '"' ? 2 : 1, c);
    list += '"';
  }
  return list;
}

std::unordered_map<std::string, std::string> library_options(const SentencePieceOptions& options,
                                                             bool quiet) {
  const bool bpe = options.type == Type::kBpe;
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  char coverage[32];
  const auto end = std::to_chars(coverage, coverage + sizeof(coverage), options.character_coverage);
  // The special pieces always exist, and the message about missing pieces counts them together with
  // the characters.
  const auto ids = {options.pad_id, options.bos_id, options.eos_id, options.unk_id};
  const int64_t least = std::count_if(ids.begin(), ids.end(), [](int id) { return id >= 0; }) +
                        static_cast<int64_t>(options.control_symbols.size()) +
                        static_cast<int64_t>(options.user_defined_symbols.size()) +
                        (options.byte_fallback ? 256 : 0);
  std::unordered_map<std::string, std::string> named = {
      {"model_type", bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(std::max(options.vocab_size, least))},
      {"character_coverage", std::string(coverage, end.ptr)},
      {"byte_fallback", flag(options.byte_fallback)},
      {"max_sentence_length", std::to_string(options.max_sentence_length)},
      {"max_sentencepiece_length", std::to_string(options.max_sentencepiece_length)},
      {"split_digits", flag(options.split_digits)},
      {"normalization_rule_name", options.normalization_rule_name},
      {"add_dummy_prefix", flag(options.add_dummy_prefix)},
      {"num_threads", bpe ? kBpeParts : kUnigramParts},
      {"pad_id", std::to_string(options.pad_id)},
      {"bos_id", std::to_string(options.bos_id)},
      {"eos_id", std::to_string(options.eos_id)},
      {"unk_id", std::to_string(options.unk_id)},
      {"minloglevel", quiet ? "1" : "0"},
  };
  // The sample is already drawn; the library only records its size, and accepts none up to 100.
  if (options.input_sentence_size > 100) {
    named.emplace("input_sentence_size", std::to_string(options.input_sentence_size));
  }
  if (!options.control_symbols.empty()) {
    named.emplace("control_symbols", quoted_list(options.control_symbols));
  }
  if (!options.user_defined_symbols.empty()) {
    named.emplace("user_defined_symbols", quoted_list(options.user_defined_symbols));
  }
  return named;
}

// Returns the number after `words` in `text`.
std::optional<int64_t> number_after(const std::string& text, std::string_view words) {
  const size_t found = text.find(words);
  if (found == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* begin = text.data() + found + words.size();
  const auto result = std::from_chars(begin, text.data() + text.size(), number);
  return result.ec == std::errc() ? std::optional<int64_t>(number) : std::nullopt;
}

[[noreturn]] void no_text(const std::vector<std::string>& files, const TextLines::Counts& counts,
                          const SentencePieceOptions& options) {
  std::string what = files.front() + (files.size() > 1 ? " and the other files" : "") +
                     ": there is no text to learn a vocabulary from";
  if (counts.too_long > 0) {
    what += format_text(
        ": all lines ({}) are longer than {} bytes; cut them, or raise --max_sentence_length",
        counts.too_long, options.max_sentence_length);
  }
  throw Error(ErrorKind::kData, what);
}

}  // namespace

bool is_normal(const std::string& text, const std::string& rule) {
  sentencepiece::SentencePieceNormalizer normalizer;
  if (!normalizer.LoadFromRuleName(rule).ok()) return false;
  return normalizer.Normalize(text) == "\xE2\x96\x81" + text;
}

Error training_error(const std::string& message, const SentencePieceOptions& options) {
  const std::string size = format_text("vocab_size {}", options.vocab_size);
  if (const auto largest = number_after(message, "Please set it to a value <= ")) {
    return {ErrorKind::kConfig,
            format_text("{} is more than this text allows; the largest that works is {}", size,
                        *largest)};
  }
  const size_t small = message.find("Vocabulary size is smaller than required_chars");
  if (small != std::string::npos) {
    const auto least = number_after(message.substr(small), " vs ");
    return {ErrorKind::kConfig,
            format_text("{} has no place for the characters of this text and the symbols; the "
                        "smallest that works is {}; raise it, or lower --character_coverage",
                        size, least.value_or(0))};
  }
  if (message.find("[!sentences_.empty()]") != std::string::npos) {
    return {ErrorKind::kData,
            "there is no text to learn a vocabulary from: nothing is left after the normalisation"};
  }
  if (message.find("corpus too large") != std::string::npos) {
    return {ErrorKind::kData,
            "the text is longer than SentencePiece can train on (2^31 characters); take a sample "
            "of its lines with --input_sentence_size"};
  }
  return {ErrorKind::kData, "SentencePiece cannot train on this text (" + message + ")"};
}

void TrainingLog::take(const std::string& line) {
  if (!options_.progress) return;
  if (options_.type == Type::kBpe) {
    if (line.find("Added: freq=") == std::string::npos) return;
    if (const auto size = number_after(line, " size=")) {
      options_.progress("training", *size, std::max(options_.vocab_size, *size));
    }
    return;
  }
  if (line.find("EM sub_iter=") == std::string::npos) return;
  // The size decreases from all frequent pieces to 1.1 times the target, by a constant factor per
  // step.
  const auto size = static_cast<double>(number_after(line, " size=").value_or(1));
  if (first_size_ == 0) first_size_ = size;
  const double all = std::log(first_size_ / (1.1 * static_cast<double>(options_.vocab_size)));
  const double part = all > 0 ? std::log(first_size_ / size) / all : 1;
  options_.progress("training", static_cast<int64_t>(100 * std::clamp(part, 0.0, 1.0)), 100);
}

TrainedSentencePiece train_by_library(const std::vector<std::string>& files,
                                      const SentencePieceOptions& options, bool quiet,
                                      const ProcessReports& reports) {
  TextLines lines(files, static_cast<size_t>(options.max_sentence_length),
                  [&](int64_t done, int64_t total) { reports.progress(done, total); });
  std::vector<std::string> sample;
  if (options.input_sentence_size > 0) {
    sample = take_sample(lines, static_cast<size_t>(options.input_sentence_size), options.seed);
  }
  Sentences sentences = options.input_sentence_size > 0 ? Sentences(sample) : Sentences(lines);
  if (sentences.done()) no_text(files, lines.counts(), options);
  TrainedSentencePiece trained;
  const auto status = sentencepiece::SentencePieceTrainer::Train(library_options(options, quiet),
                                                                 &sentences, &trained.model);
  if (!status.ok()) throw training_error(std::string(status.message()), options);
  const TextLines::Counts& counts = lines.counts();
  trained.lines =
      options.input_sentence_size > 0 ? static_cast<int64_t>(sample.size()) : counts.lines;
  trained.other_lines = counts.lines - trained.lines;
  trained.too_long = counts.too_long;
  trained.first_too_long = counts.first_too_long;
  trained.reserved = counts.reserved;
  return trained;
}

}  // namespace finetune::tokenizer
