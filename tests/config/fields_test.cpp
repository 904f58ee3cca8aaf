// SPDX-License-Identifier: MIT
#include "finetune/config/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "config/keys/words.h"
#include "config/reading/values.h"
#include "finetune/base/json.h"
#include "finetune/config/dump.h"
#include "support/paths.h"

namespace finetune {
namespace {

const std::string kSource = source_dir();

std::string read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the names of the data members that the headers of the parts declare, in order.
std::vector<std::string> declared_members() {
  const std::regex member(R"(^  [A-Za-z][\w:<>]*(?: [\w:<>]+)* (\w+)(?: = [^;]+)?;)");
  std::vector<std::string> names;
  for (const char* part : {"model", "adapter", "data", "task", "chat", "embedding", "preference",
                           "optimizer", "device", "logging", "checkpoint"}) {
    std::istringstream header(
        read(kSource + "/include/finetune/config/" + std::string(part) + "_args.h"));
    std::smatch match;
    for (std::string line; std::getline(header, line);) {
      if (std::regex_search(line, match, member)) names.push_back(match[1]);
    }
  }
  return names;
}

TEST(Fields, EveryMemberIsDescribedOnce) {
  std::vector<std::string> described;
  for (const Field& field : all_fields()) {
    if (!std::holds_alternative<ForeignKey>(field.member)) described.push_back(field.name);
  }
  EXPECT_GT(described.size(), 120U);
  EXPECT_THAT(described, ::testing::UnorderedElementsAreArray(declared_members()));
}

TEST(Fields, NamesBelongToTheirMembers) {
  // Two keys of one member would have the same address.
  const TrainingArgs args;
  std::set<const void*> addresses;
  for (const Field& field : all_fields()) {
    const void* address = std::visit(
        [&]<class Member>(const Member& member) -> const void* {
          if constexpr (std::is_same_v<Member, ForeignKey>) {
            return &field;
          } else {
            return &(args.*member);
          }
        },
        field.member);
    EXPECT_TRUE(addresses.insert(address).second) << field.name;
  }
}

TEST(Fields, EachHasOneSentenceOfHelp) {
  for (const Field& field : all_fields()) {
    EXPECT_TRUE(field.help.ends_with(".")) << field.name;
    const size_t colon = field.help.find(": ");  // "mlm: share of ..." if a single task has the key
    const bool names_its_task =
        colon != std::string::npos &&
        contains(find_field("task")->spec.choices, field.help.substr(0, colon));
    const char first = field.help[names_its_task ? colon + 2 : 0];
    EXPECT_EQ(std::isupper(static_cast<unsigned char>(first)) == 0, names_its_task) << field.name;
    EXPECT_FALSE(field.section.empty()) << field.name;
  }
}

TEST(Fields, WhatIsNotSupportedSaysWhy) {
  for (const Field& field : all_fields()) {
    if (field.spec.support != Support::kSupported || !field.spec.available.empty()) {
      EXPECT_FALSE(field.spec.reason.empty()) << field.name;
    }
  }
}

TEST(Fields, DefaultsAreAmongTheChoices) {
  for (const Field& field : all_fields()) {
    const nlohmann::ordered_json value = value_of(field, TrainingArgs{});
    if (field.spec.choices.empty() || !value.is_string()) continue;
    EXPECT_THAT(field.spec.choices, ::testing::Contains(value.get<std::string>())) << field.name;
  }
}

TEST(Fields, DefaultsAreThoseOfTransformers) {
  const nlohmann::ordered_json theirs =
      read_json_file(kSource + "/tests/fixtures/config/hf_training_arguments.json").at("defaults");
  ASSERT_EQ(theirs.size(), 114U);
  const TrainingArgs ours;
  // Our own defaults: train unless disabled, resume automatically.
  const std::set<std::string> chosen = {"do_train", "resume_from_checkpoint"};
  for (const auto& [name, expected] : theirs.items()) {
    const Field* field = find_field(name);
    ASSERT_NE(field, nullptr) << name;
    if (chosen.contains(name)) continue;
    nlohmann::ordered_json value = value_of(*field, ours);
    // List fields of transformers are a string, a list or None.
    if (value.is_array() && value.empty() && expected.is_null()) continue;
    if (value.is_array() && value.size() == 1 && expected.is_string()) value = value.front();
    if (name == "output_dir") {  // None until __post_init__
      EXPECT_EQ(value, "trainer_output");
      continue;
    }
    EXPECT_EQ(value, expected) << name;
  }
}

TEST(Fields, DefaultsOfRunMlmAreItsOwn) {
  const TrainingArgs args;
  EXPECT_EQ(args.validation_split_percentage, 5);
  EXPECT_EQ(args.mlm_probability, 0.15);
  EXPECT_EQ(value_of(*find_field("model_revision"), args), "main");
  EXPECT_EQ(value_of(*find_field("use_fast_tokenizer"), args), true);
  EXPECT_FALSE(args.line_by_line);
  EXPECT_FALSE(args.max_seq_length.has_value());
}

TEST(Fields, DefaultsAreTheStoredOnes) {
  EXPECT_EQ(defaults_yaml(), read(kSource + "/tests/fixtures/config/defaults.yaml"));
}

TEST(Fields, WhatMakesTheRunIsFixed) {
  for (const char* name :
       {"task", "model_name_or_path", "model_type", "config_overrides", "tokenizer_name", "seed",
        "data_seed", "max_seq_length", "line_by_line", "packing", "mlm_probability",
        "max_train_samples", "validation_split_percentage"}) {
    EXPECT_EQ(find_field(name)->spec.resume, ResumePolicy::kFixed) << name;
  }
  EXPECT_EQ(find_field("learning_rate")->spec.resume, ResumePolicy::kFreeAnnounced);
  EXPECT_EQ(find_field("output_dir")->spec.resume, ResumePolicy::kFree);
  EXPECT_EQ(find_field("train_file")->spec.resume, ResumePolicy::kFree);
}

}  // namespace
}  // namespace finetune
