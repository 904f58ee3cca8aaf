// SPDX-License-Identifier: MIT
#include "tokenizer/regex/compiled_regex.h"

#include <pcre2.h>

#include <array>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "tokenizer/regex/regex_syntax.h"

namespace finetune::tokenizer {
namespace {

// Enough for expressions that examine each character a few times; others could take hours.
constexpr uint64_t kStepsPerByte = 1000;
constexpr uint64_t kLeastSteps = 1'000'000;
constexpr uint32_t kMaxMatchCalls = 100'000'000;
constexpr uint32_t kMaxHeapKib = 64 << 10;
constexpr size_t kFirstStack = size_t{64} << 10;
constexpr size_t kMaxStack = size_t{8} << 20;
constexpr int kTooLong = -10'000;  // the callout's return value; PCRE2's own codes are larger

// Counts the characters that matching moves over, forward and back, between callouts.
struct StepCounter {
  uint64_t left;
  size_t last = 0;
};

int count_steps(pcre2_callout_block* block, void* data) {
  auto& counter = *static_cast<StepCounter*>(data);
  const size_t here = block->current_position;
  const uint64_t steps = 1 + (here > counter.last ? here - counter.last : counter.last - here);
  counter.last = here;
  if (counter.left < steps) return kTooLong;
  counter.left -= steps;
  return 0;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Memory for matching, one per thread.
struct MatchScratch {
  MatchScratch()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStack, kMaxStack, nullptr)) {
    FT_CHECK(data != nullptr && context != nullptr, "out of memory");
    pcre2_set_match_limit(context, kMaxMatchCalls);
    pcre2_set_heap_limit(context, kMaxHeapKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchScratch& match_scratch() {
  thread_local MatchScratch scratch;
  return scratch;
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* made) : code(made) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

Regex::Regex(std::string regex, std::string where)
    : regex_(std::move(regex)), where_(std::move(where)) {
  const std::string pattern = to_pcre2(regex_, where_);
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  FT_CHECK(context != nullptr, "out of memory");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_MULTILINE, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    throw Error(ErrorKind::kData, format_text("{}: the regular expression '{}' cannot be used: {}",
                                              where_, shorten_regex(regex_), message_of(error)));
  }
  code_ = std::make_unique<const Code>(code);
  // If the system forbids new machine code, PCRE2 interprets the expression.
  static_cast<void>(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE));
}

Regex::~Regex() = default;

std::vector<NormalizedText::Match> Regex::find_all(std::string_view text) const {
  std::vector<NormalizedText::Match> matches;
  MatchScratch& scratch = match_scratch();
  StepCounter counter{kLeastSteps + kStepsPerByte * text.size()};
  pcre2_set_callout(scratch.context, &count_steps, &counter);
  const size_t* ends = pcre2_get_ovector_pointer(scratch.data);
  for (size_t at = 0; at < text.size();) {
    const auto match = [&](uint32_t options) {
      counter.last = at;
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | options, scratch.data,
                         scratch.context);
    };
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      const bool limit = found == kTooLong || found == PCRE2_ERROR_MATCHLIMIT;
      throw Error(
          ErrorKind::kData,
          format_text("{}: the regular expression '{}' {} on a text of {} bytes; shorten "
                      "the text or use another tokenizer",
                      where_, shorten_regex(regex_),
                      limit ? "takes too long" : "fails (" + message_of(found) + ")", text.size()));
    }
    matches.push_back({ends[0], ends[1]});
    at = ends[1];
  }
  return matches;
}

}  // namespace finetune::tokenizer
