// SPDX-License-Identifier: MIT
// The rules by which AutoTokenizer chooses a class. tests/parity/test_tokenizer_classes.py compares
// the table and the ids with transformers.
#include "tokenizer/pipeline/transformers_classes.h"

#include <gtest/gtest.h>

namespace finetune::tokenizer {
namespace {

std::string resolved(const std::string& named, const std::string& model_type,
                     bool byte_level = false, bool custom_code = false) {
  return resolve_class({named, model_type, byte_level, custom_code});
}

TEST(TransformersClasses, ANamedClassIsUsed) {
  EXPECT_EQ(resolved("DistilBertTokenizer", "bert"), "DistilBertTokenizer");
  EXPECT_EQ(resolved("GPTNeoXTokenizer", "llama"), "GPTNeoXTokenizer");
  EXPECT_EQ(resolved("BertTokenizer", ""), "BertTokenizer");
}

TEST(TransformersClasses, TheModelTypesClassIsTheDefault) {
  EXPECT_EQ(resolved("", "electra"), "BertTokenizer");
  EXPECT_EQ(resolved("", "roberta"), "RobertaTokenizer");
  EXPECT_EQ(resolved("", "phi"), "GPT2Tokenizer");
  EXPECT_EQ(resolved("", "llama"), "");
  EXPECT_EQ(resolved("", ""), "");
  EXPECT_EQ(resolved("", "no-such-type"), "");
}

TEST(TransformersClasses, SomeTypesOverrideTheName) {
  EXPECT_EQ(resolved("GPT2Tokenizer", "granite"), "TokenizersBackend");
  EXPECT_EQ(resolved("LlamaTokenizer", "mistral"), "TokenizersBackend");
  EXPECT_EQ(resolved("PreTrainedTokenizer", "qwen2"), "Qwen2Tokenizer");
  EXPECT_EQ(resolved("Qwen2Tokenizer", "qwen3_5"), "Qwen3_5Tokenizer");
  EXPECT_EQ(resolved("LlamaTokenizer", "qwen3"), "LlamaTokenizer");
}

TEST(TransformersClasses, AByteLevelFileIsNotLlamas) {
  EXPECT_EQ(resolved("LlamaTokenizer", "llama", true), "TokenizersBackend");
  EXPECT_EQ(resolved("LlamaTokenizer", "qwen2", true), "Qwen2Tokenizer");
  EXPECT_EQ(resolved("GemmaTokenizer", "gemma", true), "GemmaTokenizer");
}

TEST(TransformersClasses, CustomCodeLeavesTheNamedClass) {
  EXPECT_EQ(resolved("GPT2Tokenizer", "granite", false, true), "GPT2Tokenizer");
  EXPECT_TRUE(needs_custom_code({"OwnTokenizer", "llama", false, true}));
  EXPECT_TRUE(needs_custom_code({"", "no-such-type", false, true}));
  EXPECT_FALSE(needs_custom_code({"OwnTokenizer", "llama", false, false}));
  EXPECT_FALSE(needs_custom_code({"OwnTokenizer", "bert", false, true}));
  EXPECT_FALSE(needs_custom_code({"AlbertTokenizer", "", false, true}));
}

TEST(TransformersClasses, AliasesBuildOnePipeline) {
  for (const char* name : {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}) {
    EXPECT_EQ(class_named(name), TokenizerClass::kBert) << name;
    EXPECT_FALSE(is_unsupported_class(name)) << name;
  }
  EXPECT_EQ(class_named("CodeGenTokenizer"), TokenizerClass::kGpt2);
  EXPECT_EQ(class_named("TokenizersBackend"), TokenizerClass::kOther);
  EXPECT_TRUE(has_token_types("ElectraTokenizer"));
  EXPECT_FALSE(has_token_types("DistilBertTokenizer"));
}

TEST(TransformersClasses, UnsupportedClassesAreKnown) {
  for (const char* name : {"AlbertTokenizer", "LukeTokenizer", "T5Tokenizer", "XLNetTokenizer"}) {
    EXPECT_TRUE(is_unsupported_class(name)) << name;
    EXPECT_EQ(class_named(name), TokenizerClass::kOther) << name;
  }
  EXPECT_FALSE(is_unsupported_class("OwnTokenizer"));
  EXPECT_FALSE(is_unsupported_class(""));
}

}  // namespace
}  // namespace finetune::tokenizer
