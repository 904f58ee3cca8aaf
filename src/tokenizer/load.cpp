// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/model_files.h"
#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/pipeline/class_pipeline.h"
#include "tokenizer/pipeline/pipeline_files.h"
#include "tokenizer/pipeline/special_names.h"
#include "tokenizer/sentencepiece/sentencepiece_files.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{512} << 20;

std::string read_file(const std::string& path) {
  try {
    return FileSystem::local().read_all(path, kMaxFileBytes);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, error.what());
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& folder_path) {
  FileSystem& files = FileSystem::local();
  const auto has = [&](const char* name) { return files.exists(join_path(folder_path, name)); };
  if (!files.exists(folder_path)) {
    throw Error(ErrorKind::kData, folder_path +
                                      ": there is no such folder; name one that holds a "
                                      "tokenizer (tokenizer.json)");
  }
  if (has(kLayaFile) && !has(kTokenizerFile) && has(kLayaTokenizerFolder)) {
    return load_tokenizer(join_path(folder_path, kLayaTokenizerFolder));
  }
  tokenizer::TokenizerFolder folder = tokenizer::read_tokenizer_folder(folder_path);
  if (has(kTokenizerFile)) {
    const std::string path = join_path(folder_path, kTokenizerFile);
    return std::make_shared<tokenizer::PipelineTokenizer>(
        tokenizer::parse_tokenizer_json(read_file(path), path, std::move(folder)));
  }
  if (has(kVocabularyFile) && has(kMergesFile)) {
    return std::make_shared<tokenizer::PipelineTokenizer>(tokenizer::parse_vocab_and_merges(
        read_file(join_path(folder_path, kVocabularyFile)),
        read_file(join_path(folder_path, kMergesFile)), std::move(folder)));
  }
  for (const char* name : kSentencePieceFiles) {
    if (!has(name)) continue;
    if (tokenizer::is_unsupported_class(folder.class_name)) {
      throw tokenizer::unsupported(join_path(folder_path, name),
                                   "the class '" + folder.class_name + "'");
    }
    const tokenizer::TokenizerClass which = tokenizer::class_of(folder);
    if (which == tokenizer::TokenizerClass::kXlmRoberta ||
        which == tokenizer::TokenizerClass::kBigBird ||
        which == tokenizer::TokenizerClass::kDebertaV2) {
      return std::make_shared<tokenizer::PipelineTokenizer>(tokenizer::parse_sentencepiece_model(
          read_file(join_path(folder_path, name)), name, std::move(folder)));
    }
    return std::make_shared<tokenizer::SentencePieceTokenizer>(
        read_file(join_path(folder_path, name)), name, std::move(folder));
  }
  if (has(kVocabularyTextFile)) {
    return std::make_shared<tokenizer::PipelineTokenizer>(tokenizer::parse_vocab_txt(
        read_file(join_path(folder_path, kVocabularyTextFile)), std::move(folder)));
  }
  throw Error(ErrorKind::kData, folder_path +
                                    ": holds no tokenizer; looked for tokenizer.json, vocab.json "
                                    "with merges.txt, sentencepiece.bpe.model, spiece.model, "
                                    "spm.model and vocab.txt; name another folder");
}

}  // namespace finetune
