// SPDX-License-Identifier: MIT
#include "finetune/chat/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;

std::tm golden_date() {
  std::tm date = {};
  date.tm_year = 126;
  date.tm_mon = 6;
  date.tm_mday = 5;
  date.tm_hour = 14;
  date.tm_min = 3;
  date.tm_sec = 9;
  date.tm_wday = 0;
  date.tm_yday = 185;
  return date;
}

TracedText render(const std::string& text, const Json& variables = Json::object()) {
  const ChatTemplate chat_template(text, "t.jinja");
  Variables given{.values = {}, .date = golden_date()};
  for (const auto& [name, value] : variables.items()) {
    given.values.emplace_back(name, Value::from_json(value));
  }
  return chat_template.render(given);
}

std::string failure(const std::string& text, const Json& variables = Json::object()) {
  try {
    return "rendered: " + render(text, variables).str();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
}

Json generated(const TracedText& text) {
  Json marks = Json::array();
  size_t begin = 0;
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.generated) marks.push_back({begin, piece.end});
    begin = piece.end;
  }
  return marks;
}

// scripts/make_chat_goldens.py: every line is what transformers renders, to the byte.
TEST(ChatTemplate, RendersWhatTransformersRenders) {
  std::ifstream file(source_dir() + "/tests/fixtures/chat/rendering.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json golden = Json::parse(line);
    const std::string text = golden.at("template");
    SCOPED_TRACE(text);
    if (golden.contains("error")) {
      EXPECT_TRUE(failure(text, golden.at("variables")).starts_with("t.jinja:1:"))
          << failure(text, golden.at("variables"));
      continue;
    }
    try {
      const TracedText rendered = render(text, golden.at("variables"));
      EXPECT_EQ(rendered.str(), golden.at("text").get<std::string>());
      EXPECT_EQ(generated(rendered), golden.at("marks"));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(cases, 150);
}

TEST(ChatTemplate, NamesLineAndColumnOfAnError) {
  EXPECT_EQ(failure("a\n  {{ 1 +\n }}"), "t.jinja:3:2: unexpected '}}'");
  EXPECT_GOLDEN(failure("a\n{% if x %}\nb"));
  EXPECT_GOLDEN(failure("{% include 'x' %}"));
  EXPECT_EQ(failure("{{ 'a' }}\n{{ raise_exception('Roles must alternate') }}"),
            "t.jinja:2:19: Roles must alternate");
  EXPECT_GOLDEN(failure("{{ message.content }}"));
  EXPECT_GOLDEN(failure("{{ 5 | items }}"));
  EXPECT_GOLDEN(failure("{{ 'a\xff' }}"));
}

TEST(ChatTemplate, LimitsStepsDepthAndSize) {
  EXPECT_NE(
      failure(
          "{% set t = 'x' * 60000000 %}{% for i in range(99999) %}{% set u = t ~ '' %}{% endfor %}")
          .find("more than 10 million steps"),
      std::string::npos);
  EXPECT_NE(failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("recurses too deeply"),
            std::string::npos);
  EXPECT_NE(failure("{{ 'x' * 1000000000 }}").find("more than 64 MiB"), std::string::npos);
  EXPECT_NE(failure("{% set a = [1] %}{% for i in range(40) %}{{ [1] * 999999999 }}{% endfor %}")
                .find("1,000,000 items"),
            std::string::npos);
  EXPECT_NE(failure("{% set ns = namespace(t='xxxxxxxxxx') %}{% for i in range(60) %}"
                    "{% set ns.t = ns.t ~ ns.t %}{% endfor %}")
                .find("more than 64 MiB"),
            std::string::npos);
  EXPECT_NE(failure(std::string(300, '(') + "1" + std::string(300, ')')), "");
  EXPECT_NE(failure("{{ " + std::string(300, '(') + "1" + std::string(300, ')') + " }}")
                .find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(failure("{{ 9223372036854775807 + 1 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(failure("{{ 2 ** 64 }}").find("64 bits"), std::string::npos);
}

// A message's content with another source than its role.
Value message(int32_t index, const std::string& role, const std::string& content) {
  return Dict{{{Value("role"), Value(TracedText(role, {.message = index, .field = 0}))},
               {Value("content"), Value(TracedText(content, {.message = index, .field = 1}))}}};
}

std::string sources(const TracedText& text) {
  std::string result;
  size_t begin = 0;
  for (const TracedText::Piece& piece : text.pieces()) {
    const std::string part = text.str().substr(begin, piece.end - begin);
    const int32_t index = piece.source.message;
    result += index < 0 ? part
                        : "<" + std::to_string(index) + "." + std::to_string(piece.source.field) +
                              ":" + part + ">";
    begin = piece.end;
  }
  return result;
}

std::string traced(const std::string& text) {
  const ChatTemplate chat_template(text, "t.jinja");
  const List messages{
      .items = {message(0, "user", " What is 1+1? "), message(1, "bot", "It's two.")}};
  return sources(chat_template.render({.values = {{"ms", messages}}}));
}

TEST(ChatTemplate, EveryCharacterKnowsItsSource) {
  EXPECT_EQ(traced("{% for m in ms %}[{{ m.role }}]{{ m.content }};{% endfor %}"),
            "[<0.0:user>]<0.1: What is 1+1? >;[<1.0:bot>]<1.1:It's two.>;");
  EXPECT_EQ(traced("{{ '<' ~ ms[0].content | trim ~ '>' + ms[1].content[5:] }}"),
            "<<0.1:What is 1+1?>><1.1:two.>");
  EXPECT_EQ(traced("{{ ms[1].content.split(' ')[1] | upper }}"), "<1.1:TWO.>");
  EXPECT_EQ(traced("{{ ms[1].content | replace('two', '2') }}"), "<1.1:It's >2<1.1:.>");
  EXPECT_EQ(traced("{{ 'a-b' | replace('-', ms[1].content[:2]) }}"), "a<1.1:It>b");
  EXPECT_EQ(traced("{{ ms[1] | tojson }}"),
            R"({"role": "<1.0:bot>", "content": "<1.1:It's two.>"})");
  EXPECT_EQ(traced("{{ [ms[0].role, ms[1].role] | join('+') }}"), "<0.0:user>+<1.0:bot>");
  EXPECT_EQ(traced("{% set t %}{{ ms[0].role }}!{% endset %}{% macro f(x) %}({{ x }}){% endmacro %}"
                   "{{ f(t) }}"),
            "(<0.0:user>!)");
  EXPECT_EQ(traced("{% set ns = namespace(t='') %}{% for m in ms %}{% set ns.t = ns.t + m.role %}"
                   "{% endfor %}{{ ns.t[2:6] }}"),
            "<0.0:er><1.0:bo>");
  EXPECT_EQ(traced("{{ ms[1].content[::-1] }}{{ ms[1].role.title() }}"),
            "<1.1:.owt s'tI><1.0:Bot>");
}

// Macros and namespaces that refer to themselves are freed (AddressSanitizer's leak check).
TEST(ChatTemplate, FreesCycles) {
  EXPECT_EQ(render("{% set ns = namespace(a=1) %}{% set ns.me = ns %}{% set ns.list = [ns] %}"
                   "{% macro f() %}x{% endmacro %}{% set ns.f = f %}"
                   "{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}{{ f() }}")
                .str(),
            "TrueFalsex");
}

TEST(ChatTemplate, KnowsWhatItUses) {
  const ChatTemplate chat_template(
      "{% generation %}<|end|>{{ '<|user|>' }}{% endgeneration %}{{ strftime_now('%d') }}", "t");
  EXPECT_TRUE(chat_template.has_generation());
  EXPECT_TRUE(chat_template.uses("strftime_now"));
  EXPECT_FALSE(chat_template.uses("messages"));
}

}  // namespace
}  // namespace finetune::chat
