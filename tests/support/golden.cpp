// SPDX-License-Identifier: MIT
#include "support/golden.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "support/paths.h"

namespace finetune {
namespace {

constexpr char kHead[] =
    "# What messages say (tests/support/golden.h). Written with FINETUNE_UPDATE_GOLDENS=1.\n";

// One line of printable ASCII and UTF-8.
std::string escaped(const std::string& text) {
  std::ostringstream line;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '\\') {
      line << "\\\\";
    } else if (letter == '\n') {
      line << "\\n";
    } else if (byte < 0x20 || byte == 0x7F || byte >= 0xF8) {
      line << "\\x"
           << "0123456789ABCDEF"[byte / 16] << "0123456789ABCDEF"[byte % 16];
    } else {
      line << letter;
    }
  }
  return line.str();
}

std::string line_of(const std::string& text) {
  static const std::regex scratch("[^ '\":,;(]*/finetune-test-[A-Za-z0-9]{6}");
  static const std::regex hash("[0-9a-f]{32}");
  static const std::regex moment("20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}");
  std::string line = std::regex_replace(text, scratch, "FOLDER");
  line = std::regex_replace(line, hash, "HASH");
  line = std::regex_replace(line, moment, "MOMENT");
  const std::string source = source_dir() + "/";
  for (size_t at = 0; (at = line.find(source, at)) != std::string::npos;) {
    line.replace(at, source.size(), "SOURCE/");
  }
  return escaped(line);
}

std::string running_test() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? "" : std::string(test->test_suite_name()) + "." + test->name();
}

// The tests that a filter left out: their texts are kept.
std::set<std::string> tests_left_out() {
  std::set<std::string> names;
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!test.should_run()) names.insert(std::string(suite.name()) + "." + test.name());
    }
  }
  return names;
}

class Goldens : public ::testing::EmptyTestEventListener {
 public:
  Goldens() : update_(std::getenv("FINETUNE_UPDATE_GOLDENS") != nullptr) {
    std::string area = program_invocation_short_name;  // finetune_<area>_tests
    area = area.substr(area.find('_') + 1);
    path_ = source_dir() + "/tests/fixtures/texts/" + area.substr(0, area.rfind('_')) + ".txt";
    std::ifstream file(path_);
    std::string test;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      if (line[0] == '[') {
        test = line.substr(1, line.size() - 2);
      } else {
        texts_[test].push_back(line.substr(2));
      }
    }
  }

  ::testing::AssertionResult ask(const std::string& text) {
    const std::string test = running_test();
    if (test != test_) begin(test);
    const std::string line = line_of(text);
    std::vector<std::string>& texts = texts_[test];
    const size_t at = asked_++;
    if (update_) {
      texts.push_back(line);
      return ::testing::AssertionSuccess();
    }
    if (at < texts.size() && texts[at] == line) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "it says\n  " << line << "\nand text " << at + 1 << " of [" << test << "] in "
           << path_ << " is\n  " << (at < texts.size() ? texts[at] : "not there")
           << "\nIf the new words are right: FINETUNE_UPDATE_GOLDENS=1";
  }

  void OnTestEnd(const ::testing::TestInfo& test) override {
    const size_t known = texts_[running_test()].size();
    const size_t asked = test_ == running_test() ? asked_ : 0;
    if (!update_ && test.result()->Passed() && asked < known) {
      ADD_FAILURE() << "the test asked for " << asked << " of its " << known << " texts in "
                    << path_;
    }
    test_.clear();
  }

  void OnTestProgramEnd(const ::testing::UnitTest& /*tests*/) override {
    if (!update_) return;
    const std::set<std::string> left_out = tests_left_out();
    std::ofstream file(path_);
    file << kHead;
    for (const auto& [test, texts] : texts_) {
      if (texts.empty() || (!has_asked_.contains(test) && !left_out.contains(test))) continue;
      file << "\n[" << test << "]\n";
      for (const std::string& text : texts) file << "- " << text << '\n';
    }
  }

 private:
  void begin(const std::string& test) {
    test_ = test;
    asked_ = 0;
    if (!update_) return;
    texts_[test].clear();
    has_asked_.insert(test);
  }

  bool update_;
  std::string path_;
  std::map<std::string, std::vector<std::string>> texts_;
  std::set<std::string> has_asked_;
  std::string test_;  // the running one
  size_t asked_ = 0;
};

}  // namespace

::testing::AssertionResult is_golden(const std::string& text) {
  // gtest owns it.
  static Goldens* const goldens = [] {
    auto* created = new Goldens;
    ::testing::UnitTest::GetInstance()->listeners().Append(created);
    return created;
  }();
  return goldens->ask(text);
}

}  // namespace finetune
