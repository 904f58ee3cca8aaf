// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/train_sentencepiece.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/utf8.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"
#include "tokenizer/training/library_process.h"
#include "tokenizer/training/sentencepiece_training.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune {
namespace {

using Type = SentencePieceOptions::Type;

constexpr const char* kLibraryPhase = "training a tokenizer";
constexpr std::array<const char*, 5> kRules = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf",
                                               "identity"};

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kConfig, what); }

void check_range(const char* name, double value, double least, double most, const char* range) {
  if (!(value >= least && value <= most)) refuse(std::string(name) + " must lie between " + range);
}

// Returns the special pieces that the model has.
std::vector<std::string> own_pieces(const SentencePieceOptions& options) {
  const std::array<std::pair<const char*, int>, 4> ids = {{{"<pad>", options.pad_id},
                                                           {"<s>", options.bos_id},
                                                           {"</s>", options.eos_id},
                                                           {"<unk>", options.unk_id}}};
  std::vector<std::string> pieces;
  std::vector<int> used;
  for (const auto& [piece, id] : ids) {
    if (id < 0) continue;
    pieces.emplace_back(piece);
    used.push_back(id);
  }
  std::sort(used.begin(), used.end());
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i] != static_cast<int>(i)) {
      refuse(
          "pad_id, bos_id, eos_id and unk_id must be different and 0, 1, ... without a gap, or "
          "-1 for none");
    }
  }
  if (options.unk_id < 0) refuse("unk_id must not be -1: SentencePiece needs <unk>");
  return pieces;
}

bool is_byte_piece(const std::string& text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && is_digit(text[3]) && is_digit(text[4]) &&
         text[5] == '>';
}

void check_symbol(const std::string& symbol, const char* key) {
  const std::string name = std::string(key) + ": the symbol '" + symbol + "'";
  if (symbol.empty() || utf8::find_invalid(symbol) != std::string::npos ||
      symbol.find('\0') != std::string::npos) {
    refuse(std::string(key) + ": a symbol is empty or not valid UTF-8");
  }
  if (symbol.size() > 512) refuse(std::string(key) + ": a symbol is longer than 512 bytes");
  for (const char* mark : {" ", "\t", "\n", "\r", "\xE3\x80\x80", "\xE2\x96\x81", "\xE2\x96\x85"}) {
    if (symbol.find(mark) != std::string::npos) {
      refuse(name + " holds white space or one of SentencePiece's own marks (U+2581, U+2585)");
    }
  }
}

void check_symbols(const SentencePieceOptions& options) {
  std::vector<std::pair<std::string, std::string>> known;  // text, description
  for (const std::string& piece : own_pieces(options)) {
    known.emplace_back(piece, "a piece that the model has anyway");
  }
  const auto add = [&](const std::vector<std::string>& symbols, const char* key) {
    for (const std::string& symbol : symbols) {
      check_symbol(symbol, key);
      const auto same = std::find_if(known.begin(), known.end(),
                                     [&](const auto& item) { return item.first == symbol; });
      if (same != known.end()) {
        refuse(std::string(key) + ": '" + symbol + "' clashes: it is " + same->second +
               "; leave it out here");
      }
      if (symbol == "<unk>" || (options.byte_fallback && is_byte_piece(symbol))) {
        refuse(std::string(key) + ": '" + symbol + "' clashes with a piece of SentencePiece's own");
      }
      known.emplace_back(symbol, std::string("in ") + key + " already");
    }
  };
  add(options.control_symbols, "control_symbols");
  add(options.user_defined_symbols, "user_defined_symbols");
  size_t bytes = 0;
  for (const std::string& symbol : options.user_defined_symbols) {
    bytes += 2 * symbol.size() + 1;
    for (const auto& [text, what] : known) {
      if (text != symbol && what.find("user_defined") == std::string::npos &&
          symbol.find(text) != std::string::npos) {
        refuse("user_defined_symbols: '" + symbol + "' holds the special token '" + text +
               "', which is found first in a text");
      }
    }
  }
  if (bytes > 4000) refuse("user_defined_symbols: they are longer than 2,000 bytes together");
}

void check_options(const std::vector<std::string>& files, const SentencePieceOptions& options) {
  if (files.empty()) refuse("tokenizer training needs at least one text file");
  check_range("vocab_size", static_cast<double>(options.vocab_size), 1,
              double{tokenizer::kMaxVocabulary}, "1 and 4000000");
  check_range("character_coverage", options.character_coverage, 0.98, 1, "0.98 and 1");
  check_range("max_sentence_length", static_cast<double>(options.max_sentence_length), 10,
              1073741824, "10 and 1073741824");
  check_range("input_sentence_size", static_cast<double>(options.input_sentence_size), 0, 1e12,
              "0 (for all) and 10^12");
  check_range("num_threads", options.num_threads, 0, 1024, "0 (for all) and 1024");
  check_range("max_sentencepiece_length", options.max_sentencepiece_length, 1, 512, "1 and 512");
  check_range("seed", static_cast<double>(options.seed), 0, 4294967295.0, "0 and 4294967295");
  if (std::find(kRules.begin(), kRules.end(), options.normalization_rule_name) == kRules.end()) {
    refuse("normalization_rule_name must be nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf or identity");
  }
  check_symbols(options);
  for (const std::string& symbol : options.user_defined_symbols) {
    if (!tokenizer::is_normal(symbol, options.normalization_rule_name)) {
      refuse("user_defined_symbols: '" + symbol + "' is changed by the normalisation " +
             options.normalization_rule_name + " and would never be found; spell it as that does");
    }
  }
}

// Packs the result of the process: a line of JSON, then the model.
std::string pack(const TrainedSentencePiece& trained) {
  const nlohmann::json counts = {{"lines", trained.lines},
                                 {"other_lines", trained.other_lines},
                                 {"too_long", trained.too_long},
                                 {"first_too_long", trained.first_too_long},
                                 {"reserved", trained.reserved}};
  return counts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" +
         trained.model;
}

TrainedSentencePiece unpack(const std::string& text) {
  const size_t end = text.find('\n');
  const auto counts = nlohmann::json::parse(text.substr(0, end));
  TrainedSentencePiece trained;
  trained.model = text.substr(end + 1);
  trained.lines = counts.at("lines").get<int64_t>();
  trained.other_lines = counts.at("other_lines").get<int64_t>();
  trained.too_long = counts.at("too_long").get<int64_t>();
  trained.first_too_long = counts.at("first_too_long").get<std::string>();
  trained.reserved = counts.at("reserved").get<int64_t>();
  return trained;
}

Error death(const tokenizer::ProcessDied& died, const SentencePieceOptions& options) {
  if (died.signal_number() == SIGKILL) {
    return {ErrorKind::kData,
            "training a tokenizer was killed, as the system does where memory ends; take a sample "
            "of the lines with --input_sentence_size"};
  }
  return tokenizer::training_error(died.what(), options);
}

std::string train_apart(const std::vector<std::string>& files,
                        const SentencePieceOptions& options) {
  for (const bool quiet : {false, true}) {
    tokenizer::TrainingLog log(options);
    tokenizer::ProcessListener listener;
    listener.line = [&](const std::string& line) { log.take(line); };
    listener.progress = [&](int64_t done, int64_t total) {
      if (options.progress) options.progress("reading", done, total);
    };
    try {
      return tokenizer::run_in_process(
          [&](const tokenizer::ProcessReports& reports) {
            return pack(tokenizer::train_by_library(files, options, quiet, reports));
          },
          listener, options.num_threads, kLibraryPhase);
    } catch (const tokenizer::ProcessDied& died) {
      // If no pair is left to merge, the library's logging accesses a missing element and crashes:
      // try again quietly.
      const bool crashed = died.signal_number() != 0 && died.signal_number() != SIGKILL;
      if (quiet || !crashed || options.type != Type::kBpe) throw death(died, options);
    }
  }
  FT_CHECK(false, "the second attempt returns or throws");
}

}  // namespace

TrainedSentencePiece train_sentencepiece(const std::vector<std::string>& files,
                                         const SentencePieceOptions& options) {
  check_options(files, options);
  interrupt::throw_if_requested(kLibraryPhase);
  TrainedSentencePiece trained = unpack(train_apart(files, options));
  trained.vocab_size = options.vocab_size;
  (void)tokenizer::check_sentencepiece_model(trained.model, "the trained model");
  return trained;
}

}  // namespace finetune
