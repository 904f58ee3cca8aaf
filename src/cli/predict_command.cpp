// SPDX-License-Identifier: MIT
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/predict/fill_mask.h"

namespace finetune::cli {
namespace {

constexpr size_t kTextsAtATime = 256;  // answers come as the input is read

// Answers the texts collected so far, a JSON line each.
void answer(const FillMask& model, std::vector<FillMask::Text>& texts, int64_t top_k,
            int64_t batch_size) {
  interrupt::throw_if_requested("predicting");
  for (const auto& line : model(texts, top_k, batch_size)) {
    std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }
  std::cout.flush();
  if (!std::cout) throw Error(ErrorKind::kIo, "standard output cannot be written");
  texts.clear();
}

}  // namespace

int predict_command(const Arguments& arguments) {
  ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune predict MODEL_DIR [--text TEXT ...] [--input FILE] [--top_k 5]\n"
                 "                        [--batch_size 8] [--use_cpu]\n\n"
                 "Fills the masks of each text (or of each line of FILE, - for standard input);\n"
                 "one JSON line a text, in the shape of transformers' fill-mask pipeline.\n";
    return kExitFinished;
  }
  const bool use_cpu = reader.take_flag("--use_cpu");
  const std::optional<std::string> input = reader.take_value("--input");
  const int64_t top_k = reader.take_number("--top_k").value_or(5);
  const int64_t batch_size = reader.take_number("--batch_size").value_or(8);
  std::vector<FillMask::Text> texts;
  const auto add_text = [&](std::string text) {
    texts.push_back({std::move(text), "text " + std::to_string(texts.size() + 1)});
  };
  Arguments rest = reader.rest();
  if (rest.empty() || rest[0].starts_with("--")) {
    throw Error(ErrorKind::kUsage, "finetune predict needs the model's folder first");
  }
  for (size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == "--text") continue;
    if (rest[i].starts_with("--text=")) {
      add_text(rest[i].substr(7));
    } else if (rest[i].starts_with("--")) {
      throw Error(ErrorKind::kUsage, "finetune predict: unknown option '" + rest[i] +
                                         "'; see 'finetune predict --help'");
    } else {
      add_text(rest[i]);
    }
  }
  if (texts.empty() && !input) {
    throw Error(ErrorKind::kUsage, "finetune predict needs --text or --input");
  }
  const FillMask model(rest[0], use_cpu);
  if (!texts.empty()) answer(model, texts, top_k, batch_size);
  if (!input) return kExitFinished;

  std::ifstream file;
  if (*input != "-") {
    if (FileSystem::local().type(*input) == FileType::kDirectory) {
      throw Error(ErrorKind::kData, "--input: '" + *input + "' is a folder; name a text file");
    }
    file.open(*input);
    if (!file) throw Error(ErrorKind::kData, "cannot open '" + *input + "'");
  }
  std::istream& lines = *input == "-" ? std::cin : file;
  if (*input == "-") interrupt::break_reads();
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    texts.push_back({line, (*input == "-" ? "line " : *input + ":") + std::to_string(++number)});
    if (texts.size() == kTextsAtATime) answer(model, texts, top_k, batch_size);
  }
  interrupt::throw_if_requested("predicting");
  if (lines.bad()) throw Error(ErrorKind::kIo, "'" + *input + "' could not be read to its end");
  if (!texts.empty()) answer(model, texts, top_k, batch_size);
  return kExitFinished;
}

}  // namespace finetune::cli
