// SPDX-License-Identifier: MIT
#include "data/readers/tf_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/data/tf_example.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::message_of;

using Texts = std::vector<std::string>;
using Floats = std::vector<float>;
using Integers = std::vector<int64_t>;

std::string row_of(const TfExample& example) {
  return tf_row(encode_tf_example(example), "a.tfrecord, row 1").dump();
}

std::string error_of(const TfExample& example) {
  return message_of<Error>([&] { static_cast<void>(row_of(example)); });
}

TEST(TfRow, HoldsOneValueAloneAndSeveralInAList) {
  EXPECT_EQ(row_of({{"text", Texts{"\"Ĉu\"\n"}},
                    {"texts", Texts{"a", ""}},
                    {"id", Integers{-3}},
                    {"ids", Integers{0, INT64_MAX}},
                    {"none", Integers{}},
                    {"score", Floats{0.5F}},
                    {"scores", Floats{0.5F, std::numeric_limits<float>::quiet_NaN()}}}),
            R"({"id":-3,"ids":[0,9223372036854775807],"none":[],"score":0.5,"scores":[0.5,null],)"
            R"("text":"\"Ĉu\"\n","texts":["a",""]})");
  EXPECT_EQ(row_of({}), "{}");
}

TEST(TfRow, HoldsWhatIsNestedInAnObject) {
  EXPECT_EQ(
      row_of({{"answers/text", Texts{"a"}},
              {"answers/answer_start", Integers{3}},
              {"answers.x", Integers{1}},
              {"b", Integers{1}},
              {"b/c", Integers{2}},
              {"/d", Integers{3}},
              {"e/", Integers{4}}}),
      R"({"/d":3,"answers.x":1,"answers":{"answer_start":3,"text":"a"},"b":1,"b/c":2,"e/":4})");
}

TEST(TfRow, NamesTheFeatureWhoseBytesAreNoText) {
  EXPECT_GOLDEN(error_of({{"raw", Texts{"a\xFF"}}}));
  EXPECT_GOLDEN(error_of({{"raw", Texts{"a", "\xC3"}}}));
}

TEST(TfRow, MendsBytesThatAreNoText) {
  const TfExample broken = {{"id", Integers{1}}, {"raw", Texts{"a\xFF", "b"}}};
  const auto repaired = repair_tf_row(encode_tf_example(broken), "place");
  ASSERT_TRUE(repaired.has_value());
  EXPECT_EQ(tf_row(*repaired, "place").dump(), "{\"id\":1,\"raw\":[\"a\uFFFD\",\"b\"]}");
  EXPECT_FALSE(repair_tf_row(encode_tf_example({{"raw", Texts{"a"}}}), "place").has_value());
}

// Features are consumed in order: looking up each name among the previous ones would take minutes.
TEST(TfRow, TakesAnyNumberOfFeatures) {
  TfExample example;
  for (int64_t i = 0; i < 300'000; ++i) example["x/" + std::to_string(i)] = Integers{i};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(tf_row(encode_tf_example(example), "place").at("x").size(), 300'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace finetune
