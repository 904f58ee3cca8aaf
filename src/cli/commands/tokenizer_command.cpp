// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <optional>

#include "cli/commands/tokenizer_training.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/read_line.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune::cli {
namespace {

struct CodeRequest {
  std::string folder;
  bool add_special_tokens = false;
  bool skip_special_tokens = false;
  bool pair = false;
  bool offsets = false;
};

// Writes to standard output and detects a closed pipe.
class Output {
 public:
  // Returns false if the reader has closed the pipe.
  bool write_line(std::string line) {
    line += '\n';
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = ::write(STDOUT_FILENO, line.data() + done, line.size() - done);
      if (count >= 0) {
        done += static_cast<size_t>(count);
      } else if (errno == EPIPE) {
        return false;
      } else if (errno != EINTR) {
        throw Error(ErrorKind::kIo,
                    std::string("standard output cannot be written: ") + std::strerror(errno));
      }
    }
    return true;
  }
};

// Calls `handle` with every line of standard input until it returns false.
template <class Handle>
void for_each_line(const Handle& handle) {
  std::string line;
  interrupt::break_reads();
  for (int64_t number = 1; read_line(std::cin, line, "standard input:" + std::to_string(number));
       ++number) {
    interrupt::throw_if_requested("reading standard input");
    if (utf8::find_invalid(line) != std::string::npos) {
      throw Error(
          ErrorKind::kData,
          format_text("standard input:{}: is not valid UTF-8; convert the text first", number));
    }
    if (!handle(line, number)) return;
  }
  interrupt::throw_if_requested("reading standard input");
}

// The texts of a line: one, or two separated by a tab.
struct Texts {
  std::string first;
  std::optional<std::string> second;
};

Texts split_pair(const std::string& line, bool pair, int64_t number) {
  if (!pair) return {line, std::nullopt};
  const size_t tab = line.find('\t');
  if (tab == std::string::npos || line.find('\t', tab + 1) != std::string::npos) {
    throw Error(
        ErrorKind::kData,
        format_text("standard input:{}: --pair takes two texts with one tab between them", number));
  }
  return {line.substr(0, tab), line.substr(tab + 1)};
}

std::string ids_line(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (!text.empty()) text += ' ';
    text += std::to_string(id);
  }
  return text;
}

// Returns the code point index of each byte of a text, followed by the number of code points.
std::vector<int64_t> code_points(const std::string& text) {
  std::vector<int64_t> numbers;
  numbers.reserve(text.size() + 1);
  int64_t number = -1;
  for (const char byte : text) {
    if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) ++number;
    numbers.push_back(number);
  }
  numbers.push_back(number + 1);
  return numbers;
}

// Returns {"input_ids": [...], "offset_mapping": [[begin, end], ...], "token_type_ids": [...]} with
// offsets in code points, as in transformers; [0, 0] for added special tokens.
std::string offsets_line(const Tokenizer& tokenizer, const Texts& texts, bool special_tokens) {
  const std::array<const std::string*, 2> sources = {&texts.first,
                                                     texts.second ? &*texts.second : nullptr};
  std::array<Tokens, 2> tokens;
  std::array<std::vector<int64_t>, 2> numbers;
  for (size_t i = 0; i < 2 && sources[i] != nullptr; ++i) {
    tokens[i] = tokenizer.encode_with_ranges(*sources[i]);
    numbers[i] = code_points(*sources[i]);
  }
  const ModelText text = tokenizer.combine(
      tokens[0].ids,
      texts.second ? std::optional<std::span<const int32_t>>(tokens[1].ids) : std::nullopt);
  std::string ids;
  std::string offsets;
  std::string types;
  for (size_t i = 0; i < text.ids.size(); ++i) {
    const bool special = text.texts[i] == ModelText::kSpecial;
    if (special && !special_tokens) continue;
    const char* comma = ids.empty() ? "" : ", ";
    int64_t begin = 0;
    int64_t end = 0;
    if (!special) {
      const auto which = static_cast<size_t>(text.texts[i]);
      const TextRange& range = tokens[which].ranges[static_cast<size_t>(text.tokens[i])];
      begin = numbers[which][static_cast<size_t>(range.begin)];
      end = numbers[which][static_cast<size_t>(range.end)];
    }
    ids += format_text("{}{}", comma, text.ids[i]);
    offsets += format_text("{}[{}, {}]", comma, begin, end);
    types += format_text("{}{}", comma, text.token_types[i]);
  }
  return "{\"input_ids\": [" + ids + "], \"offset_mapping\": [" + offsets +
         "], \"token_type_ids\": [" + types + "]}";
}

std::vector<int32_t> encode_texts(const Tokenizer& tokenizer, const Texts& texts,
                                  bool special_tokens) {
  std::vector<int32_t> ids = tokenizer.encode(texts.first);
  std::vector<int32_t> more;
  if (texts.second) more = tokenizer.encode(*texts.second);
  if (special_tokens) {
    return tokenizer
        .combine(ids, texts.second ? std::optional<std::span<const int32_t>>(more) : std::nullopt)
        .ids;
  }
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

int encode(const CodeRequest& request) {
  const auto tokenizer = load_tokenizer(request.folder);
  Output output;
  for_each_line([&](const std::string& line, int64_t number) {
    const Texts texts = split_pair(line, request.pair, number);
    return output.write_line(
        request.offsets ? offsets_line(*tokenizer, texts, request.add_special_tokens)
                        : ids_line(encode_texts(*tokenizer, texts, request.add_special_tokens)));
  });
  return kExitFinished;
}

std::vector<int32_t> parse_ids(const std::string& line, int64_t number, int64_t size) {
  std::vector<int32_t> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) ++at;
    if (at == end) return ids;
    int32_t id = -1;
    const auto result = std::from_chars(at, end, id);
    const bool separated =
        result.ptr == end || *result.ptr == ' ' || *result.ptr == '\t' || *result.ptr == '\r';
    if (result.ec != std::errc() || !separated || id < 0 || id >= size) {
      const std::string word(at, std::find(at, end, ' '));
      throw Error(
          ErrorKind::kData,
          format_text("standard input:{}: '{}' is not a token id of this tokenizer (0 to {})",
                      number, word, size - 1));
    }
    ids.push_back(id);
    at = result.ptr;
  }
}

int decode(const CodeRequest& request) {
  const auto tokenizer = load_tokenizer(request.folder);
  Output output;
  for_each_line([&](const std::string& line, int64_t number) {
    const std::vector<int32_t> ids = parse_ids(line, number, tokenizer->size());
    return output.write_line(tokenizer->decode(ids, request.skip_special_tokens));
  });
  return kExitFinished;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  CLI::App app("Trains tokenizers; turns text into ids and back.", "finetune tokenizer");
  app.require_subcommand(1);
  TokenizerTraining training;
  CodeRequest coding;
  CLI::App* train_app = app.add_subcommand("train", "Learn a vocabulary from text files");
  describe_tokenizer_training(*train_app, training);
  CLI::App* encode_app =
      app.add_subcommand("encode", "Lines of text on standard input to lines of ids");
  encode_app->add_option("--tokenizer", coding.folder, "folder of the tokenizer")->required();
  encode_app->add_flag("--add_special_tokens", coding.add_special_tokens,
                       "put the special tokens around each line");
  encode_app->add_flag("--pair", coding.pair, "lines hold two texts with a tab between them");
  encode_app->add_flag("--offsets", coding.offsets,
                       "a JSON object a line: input_ids, offset_mapping, token_type_ids");
  CLI::App* decode_app =
      app.add_subcommand("decode", "Lines of ids on standard input to lines of text");
  decode_app->add_option("--tokenizer", coding.folder, "folder of the tokenizer")->required();
  decode_app->add_flag("--skip_special_tokens", coding.skip_special_tokens,
                       "leave special tokens out");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    throw Error(ErrorKind::kUsage, std::string(error.what()) + "; see 'finetune tokenizer --help'");
  }
  if (*train_app) return train_tokenizer(*train_app, std::move(training));
  return *encode_app ? encode(coding) : decode(coding);
}

}  // namespace finetune::cli
