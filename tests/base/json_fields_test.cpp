// SPDX-License-Identifier: MIT
#include "finetune/base/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_folder.h"

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
  EXPECT_EQ(refusal(json, integer("i", {.low = 0})),
            "a.json: 'i' must be a whole number of at least 0, not -3");
  EXPECT_EQ(refusal(json, integer("f", {.low = 0, .high = 8, .allow_float = true})),
            "a.json: 'f' must be a whole number from 0 to 8, not 1.5");
  EXPECT_EQ(refusal(json, integer("huge", {})),
            "a.json: 'huge' must be a whole number, not 9223372036854775808");
  EXPECT_EQ(refusal(json, integer("null", {})), "a.json: 'null' is missing");
  EXPECT_EQ(refusal(json, [](const JsonFields& f) { return f.number("f", {.high = 1}); }),
            "a.json: 'f' must be a number of at most 1.0, not 1.5");
  const auto number = [](const char* name, NumberRange range) {
    return [=](const JsonFields& fields) { return fields.number(name, range); };
  };
  EXPECT_EQ(refusal(json, number("f", {.low = 0, .high = 1.5, .below_high = true})),
            "a.json: 'f' must be a number from 0.0 to below 1.5, not 1.5");
  EXPECT_EQ(refusal(json, number("f", {.low = 1.5, .above_low = true})),
            "a.json: 'f' must be a number above 1.5, not 1.5");
  EXPECT_EQ(refusal(json, number("s", {.allow_nonfinite = true})),
            "a.json: 's' must be a number, not \"x\"");
  EXPECT_EQ(refusal(json, [](const JsonFields& f) { return f.unsigned_integer("i"); }),
            "a.json: 'i' must be a whole number of at least 0, not -3");
  EXPECT_EQ(refusal(json, [](const JsonFields& f) { return f.flag("s"); }),
            "a.json: 's' must be true or false, not \"x\"");
  EXPECT_EQ(refusal(json, [](const JsonFields& f) { return f.list("items", 1); }),
            "a.json: 'items' must be a list of at most 1 items, not a list");
  EXPECT_EQ(refusal(json, [](const JsonFields& f) { return f.items("items").size(); }),
            "a.json: 'items[1]' must be an object, not 5");
  const Json nested = {{"items", {{{"k", "v"}}}}};
  EXPECT_EQ(refusal(nested, [](const JsonFields& f) { return f.items("items")[0].integer("k"); }),
            "a.json: 'items[0].k' must be a whole number, not \"v\"");
  EXPECT_EQ(message_of<Error>([] { JsonFields(Json(1), "a.json", ErrorKind::kData, "; why"); }),
            "a.json: must be a JSON object; why");
}

}  // namespace
}  // namespace finetune
