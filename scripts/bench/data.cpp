// SPDX-License-Identifier: MIT
// What data cost, one core at a time. Prints one JSON line.
//   data_benchmark encode TOKENIZER FILE REPEATS   lines to ids, REPEATS times over the file
//   data_benchmark cold TOKENIZER FILE REPEATS     the same, each time by a new thread, which has seen
//     no word yet: the fastest, for profiles
//   data_benchmark ids TOKENIZER FILE OUTPUT       lines to ids, all of them to OUTPUT, 4 bytes
//   each data_benchmark train SIZE FOLDER FILE ...      a byte-level BPE vocabulary, as files in
//   FOLDER data_benchmark batches TOKENIZER FILE BATCH LENGTH WORKERS UPDATES
//     what a training thread spends for a masked batch of BATCH x LENGTH in the steady state
//   data_benchmark packed | examples | shards ...       the same words and numbers, for lines that
//     share rows, pretraining's examples of lines as documents, and TFRecord shards of such
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/readers/line_reader.h"
#include "finetune/data/collate.h"
#include "finetune/data/document_examples.h"
#include "finetune/data/shard_examples.h"
#include "finetune/data/text_dataset.h"
#include "finetune/tokenizer/tokenizer.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "support/counted_allocations.h"

namespace finetune {
namespace {

double seconds_of(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void encode(const std::string& folder, const std::string& file, int64_t repeats, bool cold) {
  const auto tokenizer = load_tokenizer(folder);
  std::vector<std::string> lines;
  LineReader reader(file);
  std::string_view line;
  int64_t bytes = 0;
  while (reader.next(line)) {
    bytes += static_cast<int64_t>(line.size()) + 1;
    lines.emplace_back(line);
  }
  int64_t tokens = 0;
  double fastest = 1e9;
  const auto encode_once = [&] {
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (const std::string& text : lines) {
      tokens += static_cast<int64_t>(tokenizer->encode(text).size());
    }
    fastest = std::min(fastest, seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin);
  };
  const double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  for (int64_t i = 0; i < repeats; ++i) {
    if (cold) {
      std::thread(encode_once).join();
    } else {
      encode_once();
    }
  }
  double seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin;
  if (cold) seconds = fastest * static_cast<double>(repeats);
  std::printf("{\"bytes\": %lld, \"tokens\": %lld, \"cpu_seconds\": %.4f}\n",
              static_cast<long long>(bytes * repeats), static_cast<long long>(tokens), seconds);
}

void write_ids(const std::string& folder, const std::string& file, const std::string& output) {
  const auto tokenizer = load_tokenizer(folder);
  LineReader reader(file);
  std::string_view line;
  std::ofstream out(output, std::ios::binary);
  while (reader.next(line)) {
    const std::vector<int32_t> ids = tokenizer->encode(line);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  }
  std::printf("{\"written\": %s}\n", out.flush() ? "true" : "false");
}

void train(int64_t size, const std::string& folder, const std::vector<std::string>& files) {
  TrainVocabularyOptions options;
  options.vocab_size = size;
  const double begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  const TrainedVocabulary vocabulary = train_byte_level_bpe(files, options);
  const double seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin;
  for (const auto& [name, content] : make_tokenizer_files(vocabulary, std::nullopt)) {
    std::ofstream(folder + "/" + name) << content;
  }
  std::printf("{\"cpu_seconds\": %.4f}\n", seconds);
}

struct Source {
  std::shared_ptr<const Dataset> data;
  std::shared_ptr<const Collator> collator;
};

Source open_source(const std::string& kind, const std::string& folder, const std::string& file,
                   int64_t length) {
  const auto tokenizer = load_tokenizer(folder);
  if (kind == "batches" || kind == "packed") {
    TextOptions text;
    text.max_seq_length = length;
    text.line_by_line = kind == "packed";
    MaskedLmOptions masked = MaskedLmOptions::from(*tokenizer);
    masked.masking = MaskingOptions::from(*tokenizer, false);
    return {build_text_dataset({file}, *tokenizer, text),
            std::make_shared<MaskedLmCollator>(std::move(masked))};
  }
  const auto collator = std::make_shared<PretrainingCollator>(PaddingOptions::from(*tokenizer));
  if (kind == "shards") {
    ShardOptions shards;
    shards.pad_id = tokenizer->special_tokens().pad->id;
    shards.max_seq_length = length;
    return {std::make_shared<ShardExamples>(std::vector<std::string>{file}, shards), collator};
  }
  ExampleOptions examples = ExampleOptions::from(*tokenizer, false);
  examples.max_seq_length = length;
  DocumentOptions documents;
  documents.lines_are_documents = true;
  documents.longest_sentence = examples.longest_sentence();
  return {std::make_shared<DocumentExamples>(read_documents({file}, *tokenizer, documents),
                                             examples),
          collator};
}

void take_batches(const std::string& kind, const std::string& folder, const std::string& file,
                  int64_t batch, int64_t length, int64_t workers, int64_t updates) {
  const Source source = open_source(kind, folder, file, length);
  LoaderOptions options;
  options.batch_size = batch;
  options.workers = workers;
  if (kind == "packed") options.packed_length = length;
  Loader loader(source.data, source.collator, options);
  Position position;
  double spent = 0;
  int64_t counted = 0;
  constexpr int64_t kFirst = 50;
  for (int64_t i = 0; i < kFirst + updates; ++i) {
    const int64_t before = allocations;
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    static_cast<void>(loader.take(position));
    if (i >= kFirst) {
      spent += seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
      counted += allocations - before;
    }
    position = loader.after(position);
    // What a step would take.
    if (workers > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::printf("{\"microseconds\": %.1f, \"allocations\": %.1f}\n",
              1e6 * spent / static_cast<double>(updates),
              static_cast<double>(counted) / static_cast<double>(updates));
}

}  // namespace
}  // namespace finetune

int main(int count, char** words) {
  const std::vector<std::string> said(words + 1, words + count);
  const auto number = [&](size_t i) { return std::atoll(said.at(i).c_str()); };
  if (said.size() == 4 && (said[0] == "encode" || said[0] == "cold")) {
    finetune::encode(said[1], said[2], number(3), said[0] == "cold");
  } else if (said.size() == 4 && said[0] == "ids") {
    finetune::write_ids(said[1], said[2], said[3]);
  } else if (said.size() >= 4 && said[0] == "train") {
    finetune::train(number(1), said[2], {said.begin() + 3, said.end()});
  } else if (said.size() == 7) {
    finetune::take_batches(said[0], said[1], said[2], number(3), number(4), number(5), number(6));
  } else {
    std::fprintf(stderr, "see the source for the words\n");
    return 2;
  }
  return 0;
}
