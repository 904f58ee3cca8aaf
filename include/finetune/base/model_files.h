// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

// The names of files in a model's folder that more than one area reads or writes. Weights are in
// tensor/weight_files.h, checkpoints in checkpoint/layout.h.
namespace finetune {

inline constexpr char kConfigFile[] = "config.json";
inline constexpr char kAdapterConfigFile[] =
    "adapter_config.json";  // PEFT's; its base has config.json
inline constexpr char kFinetuneStateFile[] = "finetune_state.json";
inline constexpr char kDataRecordFile[] = "finetune_data.json";  // data/data_record.h
inline constexpr char kGenerationConfigFile[] = "generation_config.json";
inline constexpr char kChatTemplateFile[] = "chat_template.jinja";
inline constexpr char kMoreChatTemplates[] = "additional_chat_templates";  // a folder: NAME.jinja
// transformers': the settings and the prompt of a decision model
inline constexpr char kCalibrationFile[] = "calibration.json";  // a classifier's temperature
inline constexpr char kDecisionFile[] = "decision.json";
inline constexpr char kDecisionTemplateFile[] = "decision_template.jinja";

// Laya's: a decision model's settings, next to folders of its encoder's config.json and its
// tokenizer's files.
inline constexpr char kLayaFile[] = "rl_agent_config.json";
inline constexpr char kLayaEncoderFile[] = "encoder/config.json";
inline constexpr char kLayaTokenizerFolder[] = "tokenizer";
[[nodiscard]] constexpr bool is_laya_file_name(std::string_view name) {
  return name == kLayaFile || name == kLayaEncoderFile || name.starts_with("tokenizer/");
}
// Whether a folder in that of a model has some of them.
[[nodiscard]] constexpr bool is_laya_folder_name(std::string_view name) {
  return name == "encoder" || name == kLayaTokenizerFolder;
}

// sentence-transformers': the modules of an embedding model
inline constexpr char kModulesFile[] = "modules.json";
inline constexpr char kPoolingFile[] = "1_Pooling/config.json";
inline constexpr char kSentenceConfigFile[] = "sentence_bert_config.json";
inline constexpr char kSentenceModelFile[] = "config_sentence_transformers.json";
// The folder of the module that a tensor or a file is in: "2_Dense" of "2_Dense.linear.weight" and
// of "2_Dense/config.json". Empty: the transformer's, or the model's own folder.
[[nodiscard]] constexpr std::string_view module_folder(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  size_t end = 0;
  while (end < name.size() && is_digit(name[end])) ++end;
  if (end == 0 || end == name.size() || name[end] != '_') return {};
  const size_t type = ++end;
  while (end < name.size() && is_letter(name[end])) ++end;
  const bool is_inside = end < name.size() && (name[end] == '.' || name[end] == '/');
  return end > type && is_inside ? name.substr(0, end) : std::string_view();
}
// Whether a folder of a model has the name of a module's: "2_Dense".
[[nodiscard]] inline bool is_module_folder_name(const std::string& name) {
  return !name.empty() && module_folder(name + "/") == name;
}
// Whether a weight is that of one expert, "….experts.3.up_proj.weight": transformers has those of a
// layer's experts as one parameter, and files of other families, too.
[[nodiscard]] constexpr bool is_of_one_expert(std::string_view weight) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t found = weight.find(kExperts);
  if (found == std::string_view::npos || found + kExperts.size() == weight.size()) return false;
  const char first = weight[found + kExperts.size()];
  return first >= '0' && first <= '9';
}
[[nodiscard]] constexpr bool is_embedding_file_name(std::string_view name) {
  return name == kModulesFile || name == kSentenceConfigFile || name == kSentenceModelFile ||
         (!module_folder(name).empty() && name.ends_with("/config.json"));
}

inline constexpr char kTokenizerFile[] = "tokenizer.json";
inline constexpr char kTokenizerConfigFile[] = "tokenizer_config.json";
inline constexpr char kSpecialTokensFile[] = "special_tokens_map.json";
inline constexpr char kVocabularyFile[] = "vocab.json";  // with kMergesFile: BPE
inline constexpr char kMergesFile[] = "merges.txt";
inline constexpr char kVocabularyTextFile[] = "vocab.txt";  // WordPiece
inline constexpr std::array<const char*, 3> kSentencePieceFiles = {"sentencepiece.bpe.model",
                                                                   "spiece.model", "spm.model"};
// Whether a tokenizer consists of files of this name, among others.
[[nodiscard]] constexpr bool is_tokenizer_file_name(std::string_view name) {
  constexpr std::array<std::string_view, 7> kOthers = {
      kTokenizerFile,  kTokenizerConfigFile, kSpecialTokensFile, "added_tokens.json",
      kVocabularyFile, kMergesFile,          kVocabularyTextFile};
  return std::ranges::find(kOthers, name) != kOthers.end() ||
         std::ranges::find(kSentencePieceFiles, name) != kSentencePieceFiles.end();
}

// Metrics and predictions. Names that end with one of the last five begin with "eval" or "predict".
inline constexpr char kAllResultsFile[] = "all_results.json";
inline constexpr char kResultLinesFile[] = "predict_results.txt";
inline constexpr char kTokenLabelsFile[] = "predictions.txt";
inline constexpr char kWorstSamplesFile[] = "worst_samples.json";
inline constexpr char kGeneratedSamplesFile[] = "generated_samples.jsonl";
inline constexpr char kResultsEnd[] = "_results.json";
inline constexpr char kAnswersEnd[] = "_predictions.json";
inline constexpr char kBestAnswersEnd[] = "_nbest_predictions.json";
inline constexpr char kNullOddsEnd[] = "_null_odds.json";
inline constexpr char kCalibrationEnd[] = "_calibration.json";

}  // namespace finetune
