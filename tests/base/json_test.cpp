// SPDX-License-Identifier: MIT
#include "finetune/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/json_list.h"
#include "finetune/base/text.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;

std::string error_of(const std::string& text, const JsonLimits& limits = {}) {
  return message_of<Error>(
      [&] { static_cast<void>(parse_json(text, "a.json", ErrorKind::kData, limits)); });
}

TEST(Json, KeepsKeysInTheirOrder) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": [true, null, "ĉ\u0041", -2, 0.5], "c": {}})", "x").dump(),
            R"({"b":1,"a":[true,null,"ĉA",-2,0.5],"c":{}})");
}

TEST(Json, HandsTheItemsOfAListOverInsteadOfKeepingThem) {
  std::vector<std::string> items;
  const nlohmann::ordered_json kept = parse_json_with_list(
      R"({"a": [1], "log": [{"log": [2]}, NaN, "x"], "b": {"log": [3]}})", "x", "log",
      [&](nlohmann::ordered_json&& item) { items.push_back(item.dump()); }, ErrorKind::kData,
      {.allow_nan = true});
  EXPECT_EQ(items, (std::vector<std::string>{R"({"log":[2]})", "null", "\"x\""}));
  EXPECT_EQ(kept.dump(), R"({"a":[1],"log":[],"b":{"log":[3]}})");
  items.clear();
  EXPECT_THROW((void)parse_json_with_list(
                   R"({"log": [1, 2)", "x", "log",
                   [&](nlohmann::ordered_json&& item) { items.push_back(item.dump()); }),
               JsonError);
  EXPECT_EQ(items.size(), 2U);
}

TEST(Json, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(error_of("{\n\"a\": 1,\n\"b\": x}"), StartsWith("a.json:3: "));
  EXPECT_THAT(error_of("{} x"), StartsWith("a.json:1: "));
  EXPECT_THAT(error_of(""), StartsWith("a.json"));
}

std::string fault_of(const std::string& text) {
  try {
    static_cast<void>(parse_json(text, "x"));
    return "";
  } catch (const JsonError& error) {
    const JsonFault& fault = error.fault();
    return format_text("{}:{} {}", fault.line, fault.column, fault.found);
  }
}

TEST(Json, NamesLineColumnAndWhatWasFound) {
  EXPECT_EQ(fault_of("{\"a\": [1, 2]}"), "");
  EXPECT_GOLDEN(fault_of("{\n  \"a\": 1,\n}"));
  EXPECT_GOLDEN(fault_of("{'a': 1}"));
  EXPECT_GOLDEN(fault_of("{\"a\": 1 # one\n}"));
  EXPECT_GOLDEN(fault_of("{\"a\": 1"));
  EXPECT_GOLDEN(fault_of("{\"a\": \"1"));
  EXPECT_GOLDEN(fault_of("").substr(0, 22));
  // Columns are code points.
  EXPECT_EQ(fault_of("{\"\u00e4\": x}").substr(0, 13), "1:7 found 'x'");
  // Such faults have no single position.
  EXPECT_EQ(fault_of(R"({"a": 1, "a": 2})"), "0:0 ");
}

TEST(Json, RefusesWhatStrictJsonHasNot) {
  for (const char* text : {"{'a': 1}", "[1,]", "{\"a\": NaN}", "[01]", "// x\n1", "\"\xFF\"",
                           "\"\\ud800\"", "[1e999]", "\"a\nb\""}) {
    EXPECT_THROW(static_cast<void>(parse_json(text, "x")), Error) << text;
  }
}

TEST(Json, RefusesDuplicateKeysByName) {
  EXPECT_THAT(error_of(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
              AllOf(HasSubstr("'a'"), HasSubstr("twice")));
}

TEST(Json, BoundsDepthAndSize) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_GOLDEN(error_of(deep));
  EXPECT_NO_THROW(static_cast<void>(parse_json(deep.substr(1, 128), "x")));
  EXPECT_THAT(error_of("[1, 2, 3]", {.max_bytes = 8}), HasSubstr("9 bytes"));
  EXPECT_THROW(static_cast<void>(parse_json(std::string(1000000, '['), "x")), Error);
}

TEST(Json, ReadsPythonsNanAndInfinityAsNullWhereAskedTo) {
  const JsonLimits limits{.allow_nan = true};
  EXPECT_EQ(parse_json(R"({"NaN": NaN, "b": [-Infinity, Infinity, "a \" NaN"]})", "x",
                       ErrorKind::kData, limits)
                .dump(),
            R"({"NaN":null,"b":[null,null,"a \" NaN"]})");
}

TEST(Json, ReadsFilesAndNamesTheMissingOne) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(read_json_file(folder.write("a.json", "[1]")).dump(), "[1]");
  try {
    static_cast<void>(read_json_file(folder / "no.json", ErrorKind::kConfig));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_GOLDEN(error.what());
  }
}

// Expected values: repr() of Python.
TEST(Json, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(format_double(2e-5), "2e-05");
  EXPECT_EQ(format_double(0.1), "0.1");
  EXPECT_EQ(format_double(1.0), "1.0");
  EXPECT_EQ(format_double(-0.0), "-0.0");
  EXPECT_EQ(format_double(0.0001), "0.0001");
  EXPECT_EQ(format_double(123456789.0), "123456789.0");
  EXPECT_EQ(format_double(100000.0), "100000.0");
  EXPECT_EQ(format_double(1e15), "1000000000000000.0");
  EXPECT_EQ(format_double(1e16), "1e+16");
  EXPECT_EQ(format_double(1.0 / 3.0), "0.3333333333333333");
  EXPECT_EQ(format_double(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace finetune
