// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/train_vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <queue>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/regex/text_cutter.h"
#include "tokenizer/training/word_counts.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune {
namespace {

using tokenizer::mix;
using tokenizer::WordCounts;

constexpr const char* kPhase = "training a tokenizer";

// --- Reading -------------------------------------------------------------------------------------

class TextReader {
 public:
  explicit TextReader(const TrainVocabularyOptions& options) : options_(options) {}

  void read(const std::vector<std::string>& paths) {
    std::vector<std::unique_ptr<ReadableFile>> files;
    for (const std::string& path : paths) {
      files.push_back(open(path));
      total_ += files.back()->size();
    }
    for (size_t i = 0; i < files.size(); ++i) read_file(*files[i], paths[i]);
  }

  [[nodiscard]] const WordCounts& counts() const { return counts_; }

 private:
  static std::unique_ptr<ReadableFile> open(const std::string& path) {
    try {
      return FileSystem::local().open(path);
    } catch (const Error& error) {
      throw Error(ErrorKind::kData, error.what());
    }
  }

  void read_file(const ReadableFile& file, const std::string& path) {
    constexpr uint64_t kBlock = uint64_t{1} << 20;
    std::string block;
    std::string rest;  // the start of a line that continues in the next block
    int64_t number = 0;
    for (uint64_t offset = 0; offset < file.size(); offset += block.size()) {
      interrupt::throw_if_requested(kPhase);
      block.resize(std::min(kBlock, file.size() - offset));
      file.read_at(offset, block.data(), block.size());
      size_t start = 0;
      for (size_t end; (end = block.find('\n', start)) != std::string::npos; start = end + 1) {
        // The line end is kept: it becomes a separate word, as in the original.
        const auto line = std::string_view(block).substr(start, end + 1 - start);
        if (rest.empty()) {
          count_line(line, path, ++number);
        } else {
          count_line(rest.append(line), path, ++number);
          rest.clear();
        }
      }
      rest.append(block, start);
      done_ += block.size();
      if (options_.progress) {
        options_.progress("reading", static_cast<int64_t>(done_), static_cast<int64_t>(total_));
      }
    }
    if (!rest.empty()) count_line(rest, path, ++number);
  }

  void count_line(std::string_view line, const std::string& path, int64_t number) {
    if (utf8::find_invalid(line) != std::string_view::npos) {
      throw Error(ErrorKind::kData,
                  format_text("{}:{}: is not valid UTF-8; convert the file or drop the line", path,
                              number));
    }
    if (options_.add_prefix_space && line.front() != ' ') {
      prefixed_.assign(" ").append(line);
      line = prefixed_;
    }
    ends_.clear();
    tokenizer::gpt2_cutter().cut(line, ends_);
    size_t begin = 0;
    for (const size_t end : ends_) {
      counts_.add(line.substr(begin, end - begin));
      begin = end;
    }
  }

  const TrainVocabularyOptions& options_;
  WordCounts counts_;
  std::string prefixed_;
  std::vector<uint32_t> ends_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

// --- Merging -------------------------------------------------------------------------------------

using Pair = uint64_t;

Pair make_pair(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Maps a pair to its count and the words in which it newly appeared.
class PairTable {
 public:
  struct Entry {
    Pair pair = kEmpty;
    int64_t count = 0;
    int32_t pending = -1;  // index in the list of new pairs
  };

  Entry& operator[](Pair pair) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    Entry& entry = entries_[slot(pair)];
    if (entry.pair == kEmpty) {
      entry.pair = pair;
      ++size_;
    }
    return entry;
  }

 private:
  static constexpr Pair kEmpty = std::numeric_limits<Pair>::max();

  [[nodiscard]] size_t slot(Pair pair) const {
    size_t i = mix(pair, 0) & (entries_.size() - 1);
    while (entries_[i].pair != kEmpty && entries_[i].pair != pair) {
      i = (i + 1) & (entries_.size() - 1);
    }
    return i;
  }

  void grow() {
    std::vector<Entry> old = std::move(entries_);
    entries_.assign(old.size() * 2, {});
    for (const Entry& entry : old) {
      if (entry.pair != kEmpty) entries_[slot(entry.pair)] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(4096);
  size_t size_ = 0;
};

// Reproduces the training of the tokenizers package, including quirks of its queue: a pair may be
// queued several times, each time with other words, and its count is not lowered by its own merge.
class Trainer {
 public:
  Trainer(const WordCounts& counts, const TrainVocabularyOptions& options) : options_(options) {
    add_special_tokens_and_bytes();
    add_words(counts);
  }

  TrainedVocabulary run() {
    queue_new_pairs();
    while (static_cast<int64_t>(tokens_.size()) < options_.vocab_size && !queue_.empty()) {
      Waiting top = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[top.pair].count;
      if (top.count != count) {
        top.count = count;
        queue_.push(top);
        continue;
      }
      if (top.count < 1 || top.count < options_.min_frequency) break;
      apply(top);
      queue_new_pairs();
      report();
    }
    return finish();
  }

 private:
  struct Word {
    uint64_t offset;
    uint32_t size;
    int64_t count;
  };
  struct Waiting {
    int64_t count;
    Pair pair;
    uint32_t words;  // index of the list of words with this pair
    bool operator<(const Waiting& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  int32_t add_token(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  void add_special_tokens_and_bytes() {
    for (const std::string& token : options_.special_tokens) add_token(token);
    std::vector<std::pair<char32_t, size_t>> alphabet;
    for (size_t byte = 0; byte < 256; ++byte) {
      alphabet.emplace_back(tokenizer::byte_chars()[byte], byte);
    }
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [c, byte] : alphabet) {
      std::string token;
      utf8::append(token, c);
      byte_ids_[byte] = add_token(token);
    }
  }

  void add_words(const WordCounts& counts) {
    words_.reserve(counts.words().size());
    for (const WordCounts::Word& word : counts.words()) {
      const std::string_view text = counts.text(word);
      if (text.size() > std::numeric_limits<uint32_t>::max()) {
        throw Error(ErrorKind::kData, "a single word has more than 4 GB; is this a text?");
      }
      const auto index = static_cast<uint32_t>(words_.size());
      words_.push_back({symbols_.size(), static_cast<uint32_t>(text.size()), word.count});
      for (const char byte : text) symbols_.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      const int32_t* symbols = &symbols_[words_.back().offset];
      for (size_t i = 0; i + 1 < text.size(); ++i) {
        change(make_pair(symbols[i], symbols[i + 1]), word.count, index);
      }
    }
  }

  // Requires: |amount| is a multiple of the word's count; a positive one records the word.
  void change(Pair pair, int64_t amount, uint32_t word) {
    PairTable::Entry& entry = pairs_[pair];
    entry.count += amount;
    if (amount <= 0) return;
    if (entry.pending < 0) {
      entry.pending = static_cast<int32_t>(pending_.size());
      pending_.push_back({pair, new_list()});
    }
    std::vector<uint32_t>& list = lists_[pending_[static_cast<size_t>(entry.pending)].second];
    if (list.empty() || list.back() != word) list.push_back(word);
  }

  uint32_t new_list() {
    if (!free_lists_.empty()) {
      const uint32_t list = free_lists_.back();
      free_lists_.pop_back();
      return list;
    }
    lists_.emplace_back();
    return static_cast<uint32_t>(lists_.size() - 1);
  }

  void free_list(uint32_t list) {
    std::vector<uint32_t>().swap(lists_[list]);
    free_lists_.push_back(list);
  }

  void queue_new_pairs() {
    for (const auto& [pair, list] : pending_) {
      PairTable::Entry& entry = pairs_[pair];
      entry.pending = -1;
      if (entry.count > 0) {
        queue_.push({entry.count, pair, list});
      } else {
        free_list(list);
      }
    }
    pending_.clear();
  }

  void apply(const Waiting& top) {
    const auto left = static_cast<int32_t>(top.pair >> 32);
    const auto right = static_cast<int32_t>(top.pair & 0xFFFFFFFFu);
    const int32_t merged =
        add_token(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.push_back(top.pair);
    // Moved out, because new pairs may reallocate lists_.
    const std::vector<uint32_t> words = std::move(lists_[top.words]);
    free_list(top.words);
    for (const uint32_t word : words) merge_in_word(word, left, right, merged);
  }

  void merge_in_word(uint32_t index, int32_t left, int32_t right, int32_t merged) {
    Word& word = words_[index];
    int32_t* symbols = &symbols_[word.offset];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < word.size; ++i) {
      if (symbols[i] != left || i + 1 >= word.size || symbols[i + 1] != right) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change(make_pair(symbols[kept - 1], left), -word.count, index);
        change(make_pair(symbols[kept - 1], merged), word.count, index);
      }
      symbols[kept++] = merged;
      ++i;
      if (i + 1 < word.size) {
        change(make_pair(right, symbols[i + 1]), -word.count, index);
        change(make_pair(merged, symbols[i + 1]), word.count, index);
      }
    }
    word.size = kept;
  }

  void report() {
    if (merges_.size() % 256 != 0) return;
    interrupt::throw_if_requested(kPhase);
    if (options_.progress) {
      options_.progress("merging", static_cast<int64_t>(tokens_.size()), options_.vocab_size);
    }
  }

  TrainedVocabulary finish() {
    TrainedVocabulary result;
    result.special_tokens = options_.special_tokens;
    result.add_prefix_space = options_.add_prefix_space;
    // A pair that was merged twice has the rank of its last merge.
    std::unordered_map<Pair, size_t> last;
    for (size_t rank = 0; rank < merges_.size(); ++rank) last[merges_[rank]] = rank;
    for (size_t rank = 0; rank < merges_.size(); ++rank) {
      if (last[merges_[rank]] != rank) continue;
      result.merges.emplace_back(tokens_[merges_[rank] >> 32],
                                 tokens_[merges_[rank] & 0xFFFFFFFFu]);
    }
    result.tokens = std::move(tokens_);
    return result;
  }

  const TrainVocabularyOptions& options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Word> words_;
  std::vector<int32_t> symbols_;  // of all words
  PairTable pairs_;
  std::vector<std::pair<Pair, uint32_t>> pending_;  // new pairs and their lists
  std::vector<std::vector<uint32_t>> lists_;
  std::vector<uint32_t> free_lists_;
  std::priority_queue<Waiting> queue_;
  std::vector<Pair> merges_;
};

void check_options(const std::vector<std::string>& files, const TrainVocabularyOptions& options) {
  const auto fail = [](const std::string& what) { throw Error(ErrorKind::kConfig, what); };
  if (files.empty()) fail("tokenizer training needs at least one text file");
  if (options.vocab_size < 1 || options.vocab_size > tokenizer::kMaxVocabulary) {
    fail(format_text("vocab_size must lie between 1 and {}", tokenizer::kMaxVocabulary));
  }
  if (options.min_frequency < 0) fail("min_frequency must not be negative");
  const auto& tokens = options.special_tokens;
  for (const std::string& token : tokens) {
    if (token.empty() || token.size() > tokenizer::kMaxTokenBytes ||
        utf8::find_invalid(token) != std::string::npos) {
      fail("a special token is empty, too long or not valid UTF-8");
    }
    if (std::count(tokens.begin(), tokens.end(), token) > 1) {
      fail("the special token '" + token + "' is given twice");
    }
  }
  for (const std::string& token : TrainVocabularyOptions().special_tokens) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
      fail("special_tokens must hold '" + token + "', which the model needs");
    }
  }
}

}  // namespace

TrainedVocabulary train_byte_level_bpe(const std::vector<std::string>& files,
                                       const TrainVocabularyOptions& options) {
  check_options(files, options);
  TextReader reader(options);
  reader.read(files);
  if (reader.counts().words().empty()) {
    throw Error(ErrorKind::kData, files.front() + (files.size() > 1 ? " and the other files" : "") +
                                      ": there is no text to learn a vocabulary from");
  }
  return Trainer(reader.counts(), options).run();
}

}  // namespace finetune
