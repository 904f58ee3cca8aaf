// SPDX-License-Identifier: MIT
#include "cli/commands/tokenizer_training.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune::cli {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kByteLevelBpe = "byte_level_bpe";
constexpr const char* kUnigram = "sentencepiece_unigram";
constexpr const char* kBpe = "sentencepiece_bpe";

// Options that apply to only one type.
constexpr const char* kByteLevelOptions[] = {"--min_frequency", "--special_tokens",
                                             "--add_prefix_space"};
constexpr const char* kSentencePieceOptions[] = {"--user_defined_symbols",
                                                 "--control_symbols",
                                                 "--character_coverage",
                                                 "--byte_fallback",
                                                 "--input_sentence_size",
                                                 "--seed",
                                                 "--num_threads",
                                                 "--max_sentence_length",
                                                 "--normalization_rule_name",
                                                 "--add_dummy_prefix",
                                                 "--max_sentencepiece_length",
                                                 "--split_digits",
                                                 "--pad_id",
                                                 "--bos_id",
                                                 "--eos_id",
                                                 "--unk_id"};

// Rejects a folder with a different tokenizer; equal files are accepted.
void check_output(const TokenizerTraining& training, const Files& files) {
  FileSystem& system = FileSystem::local();
  if (training.overwrite) return;
  std::map<std::string, std::string> made(files.begin(), files.end());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
                           "sentencepiece.bpe.model", "spiece.model", "spm.model"}) {
    const std::string path = join_path(training.output, name);
    if (!system.exists(path)) continue;
    if (made.contains(name) && system.read_all(path) == made[name]) continue;
    throw Error(ErrorKind::kUsage, path +
                                       ": is there already and belongs to another tokenizer; "
                                       "choose another --output, or replace it with "
                                       "--overwrite");
  }
}

// A progress line that is overwritten; only on a terminal.
class ProgressLine {
 public:
  void operator()(const std::string& phase, int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(200)) return;
    last_ = now;
    const int64_t percent = total > 0 ? 100 * done / total : 100;
    std::fprintf(stderr, "\r%s: %3d %%", phase.c_str(), static_cast<int>(percent));
    drawn_ = true;
  }
  void end() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// A trained tokenizer: its files, and messages.
struct Trained {
  Files files;
  std::string summary;
  std::vector<std::string> warnings{};
};

Trained train_byte_level(const TokenizerTraining& training) {
  const TrainedVocabulary vocabulary = train_byte_level_bpe(training.files, training.byte_level);
  const auto size = static_cast<int64_t>(vocabulary.tokens.size());
  Trained trained{make_tokenizer_files(vocabulary, training.model_max_length),
                  format_text("a byte-level BPE tokenizer: {} tokens, {} merges", size,
                              vocabulary.merges.size())};
  if (size < training.vocab_size) {
    trained.warnings.push_back(format_text(
        "the text has no more pairs that occur at least {} times: {} tokens instead of {}",
        training.byte_level.min_frequency, size, training.vocab_size));
  } else if (size > training.vocab_size) {
    trained.warnings.push_back(
        format_text("the 256 bytes and the special tokens are {} tokens, more than --vocab_size {}",
                    size, training.vocab_size));
  }
  return trained;
}

Trained train_sentencepiece_model(const TokenizerTraining& training) {
  const SentencePieceOptions& options = training.sentencepiece;
  const TrainedSentencePiece model = train_sentencepiece(training.files, options);
  std::string lines = format_text("{} lines", model.lines);
  if (model.other_lines > 0) {
    lines = format_text("a sample of {} out of {}", lines, model.lines + model.other_lines);
  }
  const char* kind = options.type == SentencePieceOptions::Type::kBpe ? "bpe" : "unigram";
  Trained trained{
      make_sentencepiece_files(model.model, training.model_max_length),
      format_text("a SentencePiece {} model: {} pieces out of {}", kind, model.vocab_size, lines)};
  if (model.too_long > 0) {
    trained.warnings.push_back(
        format_text("{} lines longer than {} bytes were left out (the first: {}); cut them, or "
                    "raise --max_sentence_length",
                    model.too_long, options.max_sentence_length, model.first_too_long));
  }
  if (model.reserved > 0) {
    trained.warnings.push_back(format_text(
        "{} lines were skipped: they contain U+2585, a character that SentencePiece reserves",
        model.reserved));
  }
  return trained;
}

template <size_t N>
void refuse_options(const CLI::App& app, const char* const (&names)[N], const std::string& type) {
  for (const char* name : names) {
    if (app.count(name) == 0) continue;
    throw Error(ErrorKind::kUsage, std::string(name) + " has no meaning for --type " + type +
                                       "; see 'finetune tokenizer train --help'");
  }
}

void describe_sentencepiece(CLI::App& app, SentencePieceOptions& options) {
  const std::string group = "SentencePiece (names and defaults of spm_train unless said otherwise)";
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str()->group(group);
  };
  const auto add_list = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->delimiter(',')->allow_extra_args(false)->group(group);
  };
  add_list("--user_defined_symbols", options.user_defined_symbols,
           "comma-separated; one token wherever they occur in a text");
  add_list("--control_symbols", options.control_symbols,
           "comma-separated special tokens (default [CLS],[SEP],[MASK]; spm_train has none)");
  add("--character_coverage", options.character_coverage,
      "part of the text's characters that get a token; 0.98 to 1");
  app.add_flag("--byte_fallback", options.byte_fallback, "spell unknown characters as bytes")
      ->group(group);
  add("--input_sentence_size", options.input_sentence_size,
      "train on a sample of N lines; 0 for all");
  add("--seed", options.seed, "of the sample");
  add("--num_threads", options.num_threads,
      "0 for all processors; the result does not depend on it");
  add("--max_sentence_length", options.max_sentence_length, "bytes; longer lines are left out");
  add("--normalization_rule_name", options.normalization_rule_name,
      "nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity");
  add("--add_dummy_prefix", options.add_dummy_prefix, "put a space in front of each text");
  add("--max_sentencepiece_length", options.max_sentencepiece_length, "characters of a piece");
  app.add_flag("--split_digits", options.split_digits, "a token for each digit")->group(group);
  add("--pad_id", options.pad_id, "id of <pad>, -1 for none (spm_train: none)");
  add("--bos_id", options.bos_id, "id of <s>, -1 for none (spm_train: 1)");
  add("--eos_id", options.eos_id, "id of </s>, -1 for none (spm_train: 2)");
  add("--unk_id", options.unk_id, "id of <unk> (spm_train: 0)");
}

void write_files(const TokenizerTraining& training, const Files& files) {
  FileSystem& system = FileSystem::local();
  check_output(training, files);
  system.make_directories(training.output);
  for (const auto& [name, content] : files) {
    system.write_atomically(join_path(training.output, name), content);
  }
  if (!training.overwrite) return;
  for (const char* name :
       {"vocab.json", "merges.txt", "special_tokens_map.json", "sentencepiece.bpe.model",
        "spiece.model", "spm.model", "spiece.vocab"}) {
    const bool ours = std::any_of(files.begin(), files.end(),
                                  [&](const auto& file) { return file.first == name; });
    const std::string path = join_path(training.output, name);
    if (!ours && system.exists(path)) system.remove_file(path);
  }
}

}  // namespace

void describe_tokenizer_training(CLI::App& app, TokenizerTraining& training) {
  app.add_option("--type", training.type,
                 "byte_level_bpe, sentencepiece_unigram or sentencepiece_bpe")
      ->capture_default_str();
  app.add_option("--vocab_size", training.vocab_size, "tokens, everything included")->required();
  app.add_option("--output", training.output, "folder to write to")->required();
  app.add_flag("--overwrite", training.overwrite, "replace another tokenizer in that folder");
  app.add_option("--model_max_length", training.model_max_length,
                 "the longest sequence the model takes, for tokenizer_config.json")
      ->check(CLI::PositiveNumber);
  app.add_option("FILE", training.files, "text files, UTF-8")->required();
  TrainVocabularyOptions& byte_level = training.byte_level;
  app.add_option("--min_frequency", byte_level.min_frequency,
                 "how often a pair must occur to be merged")
      ->capture_default_str()
      ->group("Byte-level BPE");
  app.add_option("--special_tokens", byte_level.special_tokens,
                 "comma-separated; they take the first ids (default <s>,<pad>,</s>,<unk>,<mask>)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Byte-level BPE");
  app.add_flag("--add_prefix_space", byte_level.add_prefix_space,
               "treat the first word of a text like any other")
      ->group("Byte-level BPE");
  describe_sentencepiece(app, training.sentencepiece);
}

int train_tokenizer(const CLI::App& app, TokenizerTraining training) {
  const bool sentencepiece = training.type == kUnigram || training.type == kBpe;
  if (!sentencepiece && training.type != kByteLevelBpe) {
    throw Error(ErrorKind::kUsage,
                "--type must be byte_level_bpe, sentencepiece_unigram or "
                "sentencepiece_bpe, not '" +
                    training.type + "'");
  }
  if (sentencepiece) {
    refuse_options(app, kByteLevelOptions, training.type);
  } else {
    refuse_options(app, kSentencePieceOptions, training.type);
  }
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress;
  const auto report = [&](const std::string& phase, int64_t done, int64_t total) {
    progress(phase, done, total);
  };
  training.byte_level.vocab_size = training.vocab_size;
  training.byte_level.progress = report;
  training.sentencepiece.vocab_size = training.vocab_size;
  training.sentencepiece.progress = report;
  training.sentencepiece.type = training.type == kBpe ? SentencePieceOptions::Type::kBpe
                                                      : SentencePieceOptions::Type::kUnigram;
  const Trained trained =
      sentencepiece ? train_sentencepiece_model(training) : train_byte_level(training);
  progress.end();
  write_files(training, trained.files);
  const std::string took = format_number(
      "%.1f s", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  log::info("trained " + trained.summary + ", " + took + ", in " + training.output);
  for (const std::string& warning : trained.warnings) log::warning(warning);
  return kExitFinished;
}

}  // namespace finetune::cli
