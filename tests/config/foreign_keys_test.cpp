// SPDX-License-Identifier: MIT
// Keys of transformers that nothing here reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/load_helpers.h"
#include "config/reading/values.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/fields.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_yaml;

// A value of the key's type that is not its default, as YAML.
std::string other_value(const Field& field) {
  const nlohmann::ordered_json initial = value_of(field, TrainingArgs{});
  for (const std::string& choice : field.spec.choices) {
    const bool is_usable =
        std::ranges::find(field.spec.available, choice) != field.spec.available.end();
    if (initial != choice && !is_usable) return choice;
  }
  if (initial.is_boolean()) return initial.get<bool>() ? "false" : "true";
  if (holds<std::optional<bool>>(field)) return "true";
  if (holds<std::optional<int64_t>>(field) || holds<std::optional<double>>(field)) return "4";
  if (holds<JsonText>(field)) return "{a: 1}";
  return "some_word";
}

TEST(ForeignKeys, AreKeysWithoutAMember) {
  const std::vector<Field> rows = foreign_fields();
  EXPECT_GT(rows.size(), 50U);
  for (const Field& row : rows) {
    const Field* field = find_field(row.name);
    ASSERT_NE(field, nullptr) << row.name;
    EXPECT_TRUE(std::holds_alternative<ForeignKey>(field->member)) << row.name;
    EXPECT_NE(field->spec.support, Support::kSupported) << row.name;
  }
}

TEST(ForeignKeys, AreAnsweredWithTheReasonOfTheirRow) {
  for (const Field& row : foreign_fields()) {
    const std::string value = other_value(row);
    const std::string text = row.name + ": " + value + "\n";
    if (row.spec.support == Support::kAccepted) {
      const LoadedConfig config = load_yaml(text);
      ASSERT_EQ(config.notes.size(), 1U) << text;
      EXPECT_THAT(config.notes.front(), HasSubstr("'" + row.name));
      EXPECT_GOLDEN(config.notes.front());
      continue;
    }
    try {
      (void)load_yaml(text);
      ADD_FAILURE() << text << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_THAT(error.what(), HasSubstr("'" + row.name + ": "));
      EXPECT_THAT(error.what(), HasSubstr(std::string(row.spec.reason)));
    }
  }
}

TEST(ForeignKeys, KeepTheValueThatWasGivenForTheRecordOfARun) {
  const LoadedConfig set = load_yaml("length_column_name: tokens\nlabel_names: [a, b]\n");
  const LoadedConfig unset = load_yaml("");
  EXPECT_EQ(to_json(set.args).at("length_column_name"), "tokens");
  EXPECT_EQ(to_json(set.args).at("label_names"), nlohmann::ordered_json::parse(R"(["a","b"])"));
  EXPECT_EQ(to_json(unset.args).at("length_column_name"), "length");
  const std::vector<KeyChange> changes = changed_keys(to_json(unset.args), to_json(set.args));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].name, "length_column_name");
  EXPECT_EQ(changes[0].policy, ResumePolicy::kFreeAnnounced);
}

// Written out, a default is no reason for a note or an error.
TEST(ForeignKeys, MayHoldTheirDefaults) {
  std::string text;
  for (const Field& row : foreign_fields()) {
    text += row.name + ": " + value_of(row, TrainingArgs{}).dump() + "\n";
  }
  EXPECT_THAT(load_yaml(text).notes, ::testing::IsEmpty());
}

}  // namespace
}  // namespace finetune
