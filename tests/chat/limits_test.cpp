// SPDX-License-Identifier: MIT
#include "finetune/chat/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/filters.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/chat/chat_template.h"

namespace finetune::chat {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

std::string result_of(const std::string& text, const Variables& variables = {}) {
  try {
    return "rendered: " + ChatTemplate(text, "t").render(variables).str();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
}

double processor_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

constexpr int kTextBytes = 30'000;

// Values on which a loop that does not count its work takes long: text, lists and dicts with many
// items, and a list whose spelling is much longer than its memory.
std::vector<Value> large_values() {
  List list;
  for (int64_t i = 0; i < 10'000; ++i) list.items.emplace_back(i % 7);
  List texts;
  for (int i = 0; i < 500; ++i) texts.items.emplace_back(std::string(500, 'a'));
  Dict dict;
  for (int i = 0; i < 500; ++i) dict.items.emplace_back(std::to_string(i), int64_t{1});
  Value shared = int64_t{1};
  for (int i = 0; i < 10; ++i) shared = List{.items = {shared, shared}};
  return {std::string(kTextBytes, 'a'), list, texts, dict, shared};
}

// Whatever a template calls, its time is bounded by the work that it counts; work is limited, so
// that time is. New filters, tests and methods are checked too.
void expect_counted(const std::string& expression, const Variables& variables) {
  const ChatTemplate chat_template("{{ " + expression + " }}", "t");
  double nanoseconds = 0;
  double allowed = 0;
  for (int attempt = 0; attempt < 10; ++attempt) {  // processor time is noisy, exceptions take long
    const double begin = processor_nanoseconds();
    try {
      (void)chat_template.render(variables);
    } catch (const Error&) {
    }
    nanoseconds = processor_nanoseconds() - begin;
    allowed = (3e5 + 24 * static_cast<double>(Limits::units())) * (kIsSlow ? 20 : 1);
    if (nanoseconds < allowed) return;
  }
  ADD_FAILURE() << expression << " takes " << nanoseconds << " ns, and counts as " << allowed;
}

void expect_all_counted(const std::vector<std::string>& expressions) {
  const std::vector<Value> values = large_values();
  const std::vector<Value> others = large_values();  // equal, but not the same
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(std::string("value ") + std::to_string(i) + ", a " + values[i].type_name());
    const Variables variables{.values = {{"v", values[i]}, {"w", others[i]}, {"n", int64_t{7}}}};
    for (const std::string& expression : expressions) expect_counted(expression, variables);
  }
}

constexpr const char* kArguments[] = {"", "w", "'b', 'c'"};

TEST(Limits, CountTheWorkOfFilters) {
  std::vector<std::string> expressions;
  for (const std::string_view name : filter_names()) {
    for (const char* arguments : kArguments) {
      expressions.push_back("v | " + std::string(name) + "(" + arguments + ")");
    }
    expressions.push_back("[v, w] | map('" + std::string(name) + "') | list");
  }
  for (const char* more : {"v | sort(attribute='a.b')", "v | map(attribute='a.b.c') | list",
                           "v | sum(start=[])", "[v, w, v] | sum(start=[])", "v | tojson(indent=2)",
                           "v | tojson(sort_keys=true)", "v | tojson(separators=['x', 'y' * 100])",
                           "v | selectattr('a', 'eq', 1) | list", "v | select('in', [w]) | list",
                           "v | indent(100, true, true)", "v | map('map', 'map') | list"}) {
    expressions.emplace_back(more);
  }
  expect_all_counted(expressions);
}

TEST(Limits, CountTheWorkOfTests) {
  std::vector<std::string> expressions;
  for (const std::string_view name : test_names()) {
    if (name.find_first_of("=<>!") != std::string_view::npos) continue;  // spelled only in select()
    expressions.push_back("v is " + std::string(name));
    expressions.push_back("v is " + std::string(name) + "(w)");
    expressions.push_back("w ~ 'b' is " + std::string(name) + "(v)");
  }
  expect_all_counted(expressions);
}

TEST(Limits, CountTheWorkOfMethods) {
  std::vector<std::string> expressions;
  for (const std::string_view name : method_names()) {
    for (const char* arguments : kArguments) {
      expressions.push_back("v." + std::string(name) + "(" + arguments + ")");
    }
  }
  expect_all_counted(expressions);
}

TEST(Limits, CountTheWorkOfOperators) {
  std::vector<std::string> expressions;
  for (const char* name : {"+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">",
                           ">=", "in", "not in", "and", "or"}) {
    expressions.push_back(std::string("v ") + name + " w");
    expressions.push_back(std::string("v ") + name + " n");
    expressions.push_back(std::string("n ") + name + " v");
    expressions.push_back(std::string("[v] ") + name + " [w]");
  }
  for (const char* more : {"v[::2]", "v[::-1]", "v[5:]", "v[:-5]", "v[-5]", "v['a']", "v[w]", "v.a",
                           "not v", "dict(v)", "dict(**v)", "namespace(v)", "range(*v)", "n(*v)",
                           "{v: w, w: v}", "[v, w][0]", "v if w else n"}) {
    expressions.emplace_back(more);
  }
  expect_all_counted(expressions);
}

TEST(Limits, EndWhatGrowsWithoutBound) {
  const std::string many = "{% for j in range(99999) %}{% for i in range(99999) %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const std::string pair =
      "{% set ns.a = [1] %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}";
  const std::string twins = "{% set ns = namespace() %}" + pair + "{% set b = ns.a %}" + pair;
  const std::pair<std::string, std::string> cases[] = {
      {twins + "{{ ns.a == b }}", "10 million steps"},
      {twins + "{{ {ns.a: 1}[b] }}", "10 million steps"},
      {twins + "{{ ns.a | tojson }}", "64 MiB"},
      {"{{ ([1] * 1000000) | tojson(separators=['x' * 1000000, 'y']) | length }}", "64 MiB"},
      {"{{ ('a' * 60000000).split('a') | length }}", "256 MiB"},
      {"{% set ns = namespace(a='') %}{% for i in range(99) %}"
       "{% set ns.a = [ns.a, 'x' * 9000000] %}{% endfor %}",
       ""},
      {"{{ 'a' | map(*(['map'] * 2500)) }}", "too deeply"},
      {many + "{% macro f() %}{% endmacro %}" + end, "256 MiB"},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = namespace(a=ns.x) %}" + end, ""},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = [ns.x] %}" + end, "nested too deeply"},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = (1, ns.x) %}" + end,
       "nested too deeply"},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = {1: ns.x} %}" + end,
       "nested too deeply"},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = {ns.x: 1} %}" + end,
       "nested too deeply"},
      {"{% set ns = namespace() %}" + many + "{% set ns.x = {1: ns.x}.get %}" + end,
       "nested too deeply"},
      {"{% set ns = namespace() %}" + many +
           "{% for k in [ns.x] %}{% set ns.x = loop %}{% endfor %}" + end,
       "nested too deeply"},
      {"{% set ns = namespace() %}" + many +
           "{% for k in [1] %}{% set c = loop.changed(ns.x) %}{% set ns.x = loop %}{% endfor %}" +
           end,
       ""},
  };
  for (const auto& [text, reason] : cases) {
    SCOPED_TRACE(text);
    const double begin = processor_nanoseconds();
    const std::string result = result_of(text);
    EXPECT_TRUE(result.starts_with("t:1:")) << result;
    EXPECT_NE(result.find(reason), std::string::npos) << result;
    EXPECT_LT(processor_nanoseconds() - begin, kIsSlow ? 60e9 : 6e9);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, (kIsSlow ? 4096 : 512) * 1024);
}

TEST(Limits, BoundTheLevelsOfJson) {
  nlohmann::ordered_json json = 1;
  for (int i = 0; i < Limits::kMaxNesting; ++i) {
    json = nlohmann::ordered_json::array({std::move(json)});
  }
  const Value value = Value::from_json(json);
  EXPECT_EQ(value.nesting(), Limits::kMaxNesting);
  EXPECT_EQ(result_of("{{ (v | tojson) == v | string }}", {.values = {{"v", value}}}),
            "rendered: True");
  json = nlohmann::ordered_json::object({{"a", std::move(json)}});
  EXPECT_THROW((void)Value::from_json(json), Error);
}

TEST(Limits, ShortenMessages) {
  const auto shortens = [](const std::string& text) { return result_of(text).size() < 600; };
  EXPECT_TRUE(shortens("{{ raise_exception('x' * 10000000) }}"));
  EXPECT_TRUE(shortens("{{ {}['x' * 10000000].y }}"));
  EXPECT_TRUE(shortens("{{ 1 | " + std::string(100000, 'f') + " }}"));
  EXPECT_TRUE(shortens("{{ 1 " + std::string(100000, 'f') + " }}"));
}

TEST(Limits, ObeyAStop) {
  interrupt::request(SIGTERM);
  EXPECT_THROW((void)ChatTemplate("{% for i in range(99999) %}{% for j in range(99) %}{{ i }}"
                                  "{% endfor %}{% endfor %}",
                                  "t")
                   .render({}),
               Interrupted);
  interrupt::reset();
}

// A conversation of 1,000 messages of 10 KB is far from the limits.
TEST(Limits, LeaveLongConversationsAlone) {
  List messages;
  for (int i = 0; i < 1'000; ++i) {
    messages.items.emplace_back(
        Dict{{{Value("role"), Value(i % 2 == 0 ? "user" : "assistant")},
              {Value("content"), Value(std::string(10'000, static_cast<char>('a' + i % 26)))}}});
  }
  const std::string text =
      "{% for m in messages %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}"
      "{% endif %}{% set c = m.content | trim %}{{ '<|' ~ m.role ~ '|>' }}{{ c.upper() }}"
      "{{ c | tojson }}{% for n in messages[loop.index:loop.index + 100] %}{% if n.role == 'tool' "
      "%}x{% endif %}"
      "{% endfor %}{% endfor %}";
  EXPECT_EQ(result_of(text, {.values = {{"messages", messages}}}).substr(0, 20),
            "rendered: <|user|>AA");
  EXPECT_LT(Limits::units(), Limits::kMaxSteps * Limits::kUnitsOfStep * 3 / 4);
}

}  // namespace
}  // namespace finetune::chat
