// SPDX-License-Identifier: MIT
#include "finetune/base/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_folder.h"
#include "support/golden.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using testing::message_of;

std::string refusal(const Json& json, auto read) {
  return message_of<Error>([&] { static_cast<void>(read(JsonFields(json, "a.json"))); });
}

TEST(JsonFields, ReadsRequiredMembersOfTheirTypes) {
  const Json json = {{"i", -3},        {"n", 2},      {"f", 0.5},          {"b", true},
                     {"s", "x"},       {"l", {1, 2}}, {"o", {{"k", "v"}}}, {"items", {{{"k", 7}}}},
                     {"t", {"a", "b"}}};
  const JsonFields fields(json, "a.json");
  EXPECT_EQ(fields.integer("i"), -3);
  EXPECT_EQ(fields.number("n"), 2.0);
  EXPECT_EQ(fields.number("f"), 0.5);
  EXPECT_TRUE(fields.flag("b"));
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_THAT(fields.integers("l"), ElementsAre(1, 2));
  EXPECT_THAT(fields.numbers("l"), ElementsAre(1.0, 2.0));
  EXPECT_THAT(fields.texts("t"), ElementsAre("a", "b"));
  EXPECT_EQ(fields.fields("o").text("k"), "v");
  EXPECT_EQ(fields.items("items").at(0).integer("k"), 7);
}

TEST(JsonFields, ReadsWhatJsonHasNoPlainNumberFor) {
  const Json json = {{"top", "inf"}, {"bottom", "-inf"}, {"none", "nan"}, {"big", UINT64_MAX}};
  const JsonFields fields(json, "a.json");
  EXPECT_EQ(fields.number("top", {.allow_nonfinite = true}),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(fields.number("bottom", {.allow_nonfinite = true}),
            -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(fields.number("none", {.allow_nonfinite = true})));
  EXPECT_EQ(fields.unsigned_integer("big"), UINT64_MAX);
}

TEST(JsonFields, LeavesWhatIsAbsentOrNull) {
  const Json json = {{"null", nullptr}, {"given", 4}};
  const JsonFields fields(json, "a.json");
  int64_t value = 9;
  fields.read("null", value);
  fields.read("none", value);
  EXPECT_EQ(value, 9);
  fields.read("given", value);
  EXPECT_EQ(value, 4);
  EXPECT_EQ(fields.find("null"), nullptr);
}

TEST(JsonFields, NamesFilePathExpectationAndValue) {
  const Json json = {{"i", -3},
                     {"f", 1.5},
                     {"s", "x"},
                     {"null", nullptr},
                     {"huge", uint64_t{1} << 63},
                     {"items", {{{"k", "v"}}, 5}}};
  const auto integer = [](const char* name, IntegerRange range) {
    return [=](const JsonFields& fields) { return fields.integer(name, range); };
  };
  EXPECT_GOLDEN(refusal(json, integer("i", {.low = 0})));
  EXPECT_GOLDEN(refusal(json, integer("f", {.low = 0, .high = 8, .allow_float = true})));
  EXPECT_GOLDEN(refusal(json, integer("huge", {})));
  EXPECT_GOLDEN(refusal(json, integer("null", {})));
  EXPECT_GOLDEN(refusal(json, [](const JsonFields& f) { return f.number("f", {.high = 1}); }));
  const auto number = [](const char* name, NumberRange range) {
    return [=](const JsonFields& fields) { return fields.number(name, range); };
  };
  EXPECT_GOLDEN(refusal(json, number("f", {.low = 0, .high = 1.5, .below_high = true})));
  EXPECT_GOLDEN(refusal(json, number("f", {.low = 1.5, .above_low = true})));
  EXPECT_GOLDEN(refusal(json, number("s", {.allow_nonfinite = true})));
  EXPECT_GOLDEN(refusal(json, [](const JsonFields& f) { return f.unsigned_integer("i"); }));
  EXPECT_GOLDEN(refusal(json, [](const JsonFields& f) { return f.flag("s"); }));
  EXPECT_GOLDEN(refusal(json, [](const JsonFields& f) { return f.list("items", 1); }));
  EXPECT_GOLDEN(refusal(json, [](const JsonFields& f) { return f.items("items").size(); }));
  const Json nested = {{"items", {{{"k", "v"}}}}};
  EXPECT_GOLDEN(
      refusal(nested, [](const JsonFields& f) { return f.items("items")[0].integer("k"); }));
  EXPECT_GOLDEN(
      message_of<Error>([] { JsonFields(Json(1), "a.json", ErrorKind::kData, "; why"); }));
}

}  // namespace
}  // namespace finetune
