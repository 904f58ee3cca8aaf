// SPDX-License-Identifier: MIT
#include <iostream>
#include <sstream>

#include "cli/process/commands.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"

namespace finetune::cli {
namespace {

// Captures standard output while the object exists.
class CapturedOutput {
 public:
  CapturedOutput() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~CapturedOutput() { std::cout.rdbuf(before_); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

// Escapes a line of text for roff, so that it contains no requests.
std::string roff(const std::string& line) {
  std::string text = line.starts_with('.') || line.starts_with('\'') ? "\\&" : "";
  for (const char c : line) {
    if (c == '\\') {
      text += "\\e";
    } else {
      text += c == '-' ? "\\-" : std::string(1, c);
    }
  }
  return text + "\n";
}

std::string as_it_is(const std::string& text) {
  std::string page = ".nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) page += roff(line);
  return page + ".fi\n";
}

// Parses train's help: "Model and task:", "  --task <text> (mlm)", "      The task to train."
std::string keys_of(const std::string& help) {
  std::string page;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("      ")) {
      page += roff(line.substr(6));
    } else if (line.starts_with("  --")) {
      const size_t end = std::min(line.find(' ', 4), line.size());
      page += ".TP\n.B " + roff(line.substr(4, end - 4));
      page.insert(page.size() - 1, "\\fR" + roff(line.substr(end)));
      page.pop_back();
    } else if (!line.empty()) {
      page += ".SS " + roff(line.substr(0, line.find(':')));
    }
  }
  return page;
}

}  // namespace

std::string help_of(const Command& command, Arguments words) {
  const CapturedOutput output;
  words.emplace_back("--help");
  (void)command.run(words);
  return output.text();
}

std::string manual_page() {
  constexpr const char* kKeys = "\nkeys:\n";
  std::string page = std::string(".TH FINETUNE 1 \"\" \"finetune ") + kVersion +
                     "\" \"User Commands\"\n.SH NAME\nfinetune \\- fine\\-tune and pretrain "
                     "transformer language models and resume them bit for bit\n.SH SYNOPSIS\n"
                     ".B finetune\n.I COMMAND\n[\\fIARGUMENTS\\fR]\n.SH COMMANDS\n";
  std::string keys;
  for (const Command& command : all_commands()) {
    const std::string help = help_of(command, {});
    const size_t list = help.find(kKeys);
    page += ".SS " + roff(command.name) + as_it_is(help.substr(0, list));
    if (list != std::string::npos && keys.empty()) keys = help.substr(list + 7);
  }
  page += ".SH CONFIGURATION\n" +
          roff("A flat YAML or JSON file; '--key value' overrides it. Defaults in parentheses.") +
          keys_of(keys) + ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) {
    page += ".TP\n.B " + std::to_string(code) + "\n" + roff(meaning);
  }
  return page;
}

}  // namespace finetune::cli
