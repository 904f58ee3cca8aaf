// SPDX-License-Identifier: MIT
// Data files of any format with any content: they become samples of a task or an Error. The first
// byte chooses the format and the task.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/collate.h"
#include "finetune/data/multiple_choice_dataset.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/data/rows.h"
#include "finetune/data/tf_record.h"
#include "finetune/data/token_classification_dataset.h"

namespace {

using namespace finetune;

std::string scratch_file(const std::string& ending) {
  const std::filesystem::path memory = "/dev/shm";
  const std::filesystem::path folder =
      std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  return (folder / ("finetune-rows-fuzz-" + std::to_string(::getpid()) + ending)).string();
}

void collate_all(const Dataset& dataset) {
  if (dataset.size() == 0) std::abort();
  std::vector<SampleKey> keys;
  for (std::int64_t i = 0; i < dataset.size(); ++i) keys.push_back({.index = i});
  const Batch batch =
      PaddingCollator(PaddingOptions::from(testing::ByteTokenizer())).collate(dataset, keys);
  for (const std::int64_t start : batch.starts) {
    if (start < 0 || start >= batch.length) std::abort();
  }
}

void build(int task, const std::string& path) {
  const testing::ByteTokenizer tokenizer;
  SampleOptions common;
  common.max_seq_length = 24;
  if (task == 0) {
    ClassificationOptions options;
    static_cast<SampleOptions&>(options) = common;
    const LabelSurvey survey = survey_labels({path}, {}, {}, {});
    options.problem = survey.problem;
    options.labels = survey.labels;
    options.outputs = survey.outputs;
    collate_all(*build_classification_dataset({path}, tokenizer, options));
  } else if (task == 1) {
    MultipleChoiceOptions options;
    static_cast<SampleOptions&>(options) = common;
    collate_all(*build_multiple_choice_dataset({path}, tokenizer, options));
  } else if (task == 2) {
    TokenClassificationOptions options;
    static_cast<SampleOptions&>(options) = common;
    options.labels = survey_word_labels({path}, {}, {}, {});
    collate_all(*build_token_classification_dataset({path}, tokenizer, options));
  } else {
    QuestionAnsweringOptions options;
    static_cast<SampleOptions&>(options) = common;
    options.doc_stride = 4;
    options.without_answer = true;
    options.keep_questions = true;
    const auto data = build_question_answering_dataset({path}, tokenizer, options);
    collate_all(*data);
    for (std::int64_t i = 0; i < data->size(); ++i) {
      const auto& context = data->questions()[static_cast<std::size_t>(data->question_of(i))];
      for (std::int64_t token = 0; token < 24; ++token) {
        const auto range = data->range(i, token);
        if (range && range->end > static_cast<std::int64_t>(context.context.size())) std::abort();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level("error");
  if (size == 0) return 0;
  static const std::string endings[] = {".jsonl", ".json", ".csv",      ".tsv",
                                        ".conll", ".txt",  ".tfrecord", ".tfrecords"};
  const std::string& ending = endings[(data[0] / 4) % 8];
  const std::string path = scratch_file(ending);
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (ending == ".tfrecords") bytes = tf_record(bytes);  // with correct checksums
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    build(data[0] % 4, path);
  } catch (const Error&) {  // expected for a bad file
  }
  std::filesystem::remove(path);
  return 0;
}
