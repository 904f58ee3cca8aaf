// SPDX-License-Identifier: MIT
#include "finetune/base/json_fault.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune {
namespace {

std::string fault_of(const std::string& text) {
  const auto fault = find_json_fault(text);
  if (!fault) return "";
  return std::to_string(fault->line) + ":" + std::to_string(fault->column) + " " + fault->found;
}

TEST(JsonFault, NamesLineColumnAndWhatWasFound) {
  EXPECT_EQ(fault_of("{\"a\": [1, 2]}"), "");
  EXPECT_EQ(fault_of("{\n  \"a\": 1,\n}"),
            "3:1 found '}', where a key in double quotes is expected (remove the comma before it)");
  EXPECT_EQ(fault_of("{'a': 1}"),
            "1:2 found ''', where a key in double quotes is expected (strings have double quotes)");
  EXPECT_EQ(fault_of("{\"a\": 1 # one\n}"),
            "1:9 found '#', where '}' is expected (JSON has no comments)");
  EXPECT_EQ(fault_of("{\"a\": 1"), "1:8 the text ends here, where '}' is expected");
  EXPECT_EQ(fault_of("{\"a\": \"1"), "1:9 a string lacks its closing double quote");
  EXPECT_EQ(fault_of("").substr(0, 22), "1:1 the text ends here");
  // Columns are code points.
  EXPECT_EQ(fault_of("{\"\u00e4\": x}").substr(0, 13), "1:7 found 'x'");
}

}  // namespace
}  // namespace finetune
