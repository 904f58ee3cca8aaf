// SPDX-License-Identifier: MIT
#include "data/streaming/file_stream.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "data/cache/file_identity.h"
#include "data/cache/memory_limit.h"
#include "data/readers/file_format.h"
#include "data/streaming/shuffle_buffer.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/text.h"

namespace finetune {

Example SampleStream::get(int64_t, int64_t) const {
  FT_CHECK(false, "samples of a stream are drawn");
}

namespace {

using Json = nlohmann::ordered_json;

// Consecutive samples made of consecutive rows; the rows are read again when the samples are needed
// again.
struct Chunk {
  int64_t first = 0;  // sample
  int64_t count = 0;
  RowPosition begin = {};
  RowPosition end = {};
  std::shared_ptr<const TokenDataset> samples = {};  // null: not in memory
  int64_t used = 0;                                  // the last draw that used one of them

  [[nodiscard]] int64_t after() const { return first + count; }
};

// The samples of a few chunks, by their indices in the stream.
class DrawnSamples final : public Dataset {
 public:
  DrawnSamples(int64_t size, int64_t choices) : size_(size), choices_(choices) {}
  void add(const Chunk& chunk) { chunks_.emplace(chunk.first, chunk.samples); }

  using Dataset::get;
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] int64_t choices() const override { return choices_; }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override {
    const auto after = chunks_.upper_bound(index);
    FT_CHECK(after != chunks_.begin(), "the sample was drawn");
    const auto& [first, samples] = *std::prev(after);
    return samples->get(index - first, choice);
  }
  [[nodiscard]] std::string fingerprint() const override { return ""; }

 private:
  int64_t size_;
  int64_t choices_;
  std::map<int64_t, std::shared_ptr<const TokenDataset>> chunks_;
};

Json position_json(const RowPosition& position) {
  return {position.file, position.record.records, position.record.offset, position.record.line,
          position.record.after_return};
}

RowPosition parse_location(const Json& json) {
  return {.file = json.at(0).get<size_t>(),
          .record = {.records = json.at(1).get<int64_t>(),
                     .offset = json.at(2).get<uint64_t>(),
                     .line = json.at(3).get<int64_t>(),
                     .after_return = json.at(4).get<bool>()}};
}

class FileStream final : public SampleStream {
 public:
  FileStream(StreamSource source, const StreamOptions& options)
      : source_(std::move(source)),
        options_(options),
        rows_(source_.files, source_.rows),
        files_(identify_files(rows_.files())),
        identity_(identity_options()),
        limit_(source_.max_samples.value_or(INT64_MAX)),
        buffer_(options.buffer, options.seed),
        saved_buffer_(options.buffer, options.seed) {
    if (source_.on_first_row) rows_.on_first_row(source_.on_first_row);
    // Properties that all samples share are taken from the first ones.
    if (const Chunk* first = find(0)) {
      choices_ = first->samples->choices();
      for (int64_t sample = 0; sample < first->count; ++sample) {
        for (const uint8_t type : first->samples->get(sample).token_type_ids) {
          token_types_ = std::max<int64_t>(token_types_, type + 1);
        }
      }
    }
  }

  [[nodiscard]] int64_t size() const override {
    const std::lock_guard lock(mutex_);
    return std::min(known_, limit_);
  }
  [[nodiscard]] int64_t choices() const override { return choices_; }
  [[nodiscard]] int64_t longest() const override { return options_.longest; }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override {
    const std::lock_guard lock(mutex_);
    // The oldest sample of a full buffer entered it about `buffer * ln(buffer)` samples ago.
    const auto buffer = static_cast<double>(std::min(options_.buffer, limit_));
    return DatasetExtent{
        .longest = options_.longest,
        .bytes = static_cast<int64_t>(bytes_per_sample_ * buffer * (2.0 + std::log(buffer))),
        .token_types = token_types_};
  }
  [[nodiscard]] std::string fingerprint() const override {
    Json list = Json::array();
    for (const FileIdentity& file : files_) {
      list.push_back({static_cast<int>(file_kind(file.path)), file.size, file.samples});
    }
    return "stream-" + hash_hex(Json({{"format", 1},
                                      {"options", identity_},
                                      {"buffer", options_.buffer},
                                      {"max_samples", limit_},
                                      {"files", std::move(list)}})
                                    .dump());
  }

  [[nodiscard]] int64_t reach(int64_t count) const override {
    const std::lock_guard lock(mutex_);
    return reach_locked(count);
  }
  [[nodiscard]] std::optional<int64_t> samples_per_epoch() const override {
    const std::lock_guard lock(mutex_);
    return total_;
  }

  [[nodiscard]] std::shared_ptr<const Dataset> draw(int64_t epoch, int64_t begin, int64_t end,
                                                    std::vector<int64_t>& numbers) const override {
    const std::lock_guard lock(mutex_);
    ++draws_;
    const int64_t known = fill(epoch, begin, end);
    const size_t before = numbers.size();
    buffer_.append(epoch, begin, end, known, numbers);
    next_ = end;
    auto drawn = std::make_shared<DrawnSamples>(known, choices_);
    for (size_t i = before; i < numbers.size(); ++i) {
      Chunk& chunk = load(numbers[i]);
      chunk.used = draws_;
      drawn->add(chunk);
    }
    if (std::exchange(has_loaded_, false)) drop_samples(known);
    return drawn;
  }

  void release(int64_t epoch, int64_t position) const override {
    constexpr size_t kFewChunks = 4096;
    const std::lock_guard lock(mutex_);
    if (chunks_.size() < std::max(kFewChunks, forget_above_)) return;
    const auto [oldest, newest] = needed_at(epoch, position);
    const auto after = chunks_.upper_bound(oldest);
    if (after != chunks_.begin()) chunks_.erase(chunks_.begin(), std::prev(after));
    forget_above_ = 2 * chunks_.size();
  }

  [[nodiscard]] Json state(int64_t epoch, int64_t position) const override {
    const std::lock_guard lock(mutex_);
    Json chunks = Json::array();
    if (position > 0) {
      const auto [oldest, newest] = needed_at(epoch, position);
      const Chunk* chunk = find(oldest);
      FT_CHECK(chunk != nullptr, "samples of the buffer exist");
      while (chunk->after() <= newest) {
        chunks.push_back({chunk->first, position_json(chunk->begin)});
        chunk = find(chunk->after());
        FT_CHECK(chunk != nullptr, "samples of the buffer exist");
      }
      chunks.push_back({chunk->first, position_json(chunk->begin)});
      chunks.push_back({chunk->after(), position_json(chunk->end)});
    }
    Json json = {{"chunks", std::move(chunks)}};
    if (epoch > 0) json["samples"] = *total_;
    return json;
  }

  void restore(const Json& state, int64_t epoch, int64_t position) const override {
    const std::lock_guard lock(mutex_);
    try {
      const Json& chunks = state.at("chunks");
      std::vector<Chunk> known;
      for (const Json& item : chunks) {
        Chunk chunk{.first = item.at(0).get<int64_t>(), .begin = parse_location(item.at(1))};
        if (chunk.first < 0 || chunk.begin.file > files_.size()) {
          throw Error(ErrorKind::kData,
                      "the state of the stream is damaged: it names a position outside the files");
        }
        if (!known.empty()) {
          known.back().end = chunk.begin;
          known.back().count = chunk.first - known.back().first;
          if (known.back().count < 1)
            throw Error(ErrorKind::kData,
                        "the state of the stream is damaged: samples are not in order");
        }
        known.push_back(chunk);
      }
      if (!known.empty()) known.pop_back();  // the last one is the read position
      for (const Chunk& chunk : known) {
        known_ = std::max(known_, chunk.after());
        if (!chunks_.contains(chunk.first)) chunks_.emplace(chunk.first, chunk);
      }
      if (state.contains("samples")) set_total(state.at("samples").get<int64_t>());
    } catch (const Json::exception& error) {
      throw Error(ErrorKind::kData,
                  std::string("the state of the stream is damaged: ") + error.what());
    }
    polls_ = true;
    epoch_ = -1;
    if (reach_locked(position + 1) > position)
      static_cast<void>(fill(epoch, position, position + 1));
    polls_ = false;
  }

 private:
  // Returns the options that distinguish streams: a delimiter or quoting that the files show by
  // themselves is the same whether it is set or detected.
  [[nodiscard]] Json identity_options() const {
    Json options = source_.options;
    const ReadingOptions reading = without_plain_keys(rows_.files(), source_.rows.reading);
    if (reading == source_.rows.reading) return options;
    const Json plain = reading_json(reading);
    if (plain.is_null()) {
      options.erase("reading");
    } else {
      options["reading"] = plain;  // keeps its position: the text of all options is hashed
    }
    return options;
  }

  [[nodiscard]] int64_t reach_locked(int64_t count) const {
    const int64_t wanted = std::min(count, total_.value_or(limit_));
    if (wanted > known_) static_cast<void>(find(wanted - 1));
    return std::min({wanted, known_, limit_});
  }

  void set_total(int64_t samples) const {
    if (total_ && *total_ != samples) fail_changed();
    total_ = samples;
  }

  [[noreturn]] void fail_changed() const {
    throw Error(ErrorKind::kData,
                source_.rows.key +
                    ": a file has changed since it was first read, so that its samples are no "
                    "longer the same; put it back, or start over with --restart");
  }

  // Returns the chunk that contains a sample; null after the last one.
  [[nodiscard]] Chunk* find(int64_t sample) const {
    while (true) {
      const auto after = chunks_.upper_bound(sample);
      Chunk* before = after == chunks_.begin() ? nullptr : &std::prev(after)->second;
      if (before != nullptr && sample < before->after()) return before;
      Chunk next;
      if (before != nullptr) next = {.first = before->after(), .begin = before->end};
      if (total_ && next.first >= *total_) return nullptr;
      if (!read(next)) {
        check_files();
        set_total(next.first);
        return nullptr;
      }
      known_ = std::max(known_, next.after());
      if (known_ >= limit_) set_total(limit_);
      chunks_.insert_or_assign(next.first, next);
    }
  }

  // Reads the samples of a chunk from its beginning; false at the end of the files.
  bool read(Chunk& chunk) const {
    if (!reading_at_ || *reading_at_ != chunk.begin) rows_.seek(chunk.begin, polls_);
    reading_at_.reset();  // unknown if the next line throws
    TokenContent content;
    do {
      content = {};
      if (!source_.read(rows_, content)) return false;
    } while (content.offsets.size() == 1);
    chunk.end = rows_.position();
    reading_at_ = chunk.end;
    check_types(content, chunk.first);
    const int64_t bytes = memory_bytes(content);
    chunk.samples = std::make_shared<const TokenDataset>(std::move(content));
    chunk.count = chunk.samples->size();
    bytes_per_sample_ =
        std::max(bytes_per_sample_, static_cast<double>(bytes) / static_cast<double>(chunk.count));
    has_loaded_ = true;
    return true;
  }

  void check_types(const TokenContent& content, int64_t first) const {
    const auto too_large = [&](uint8_t type) { return type >= options_.token_types; };
    if (options_.token_types == 0 || std::ranges::none_of(content.types, too_large)) return;
    throw Error(ErrorKind::kData, format_text("{}: a sample from number {} on has more token types "
                                              "than the model's {}; use the model's own tokenizer",
                                              source_.rows.key, first, options_.token_types));
  }

  // Returns the sample's chunk, loaded into memory.
  Chunk& load(int64_t sample) const {
    Chunk* chunk = find(sample);
    FT_CHECK(chunk != nullptr, "the sample exists");
    if (chunk->samples) return *chunk;
    Chunk again{.first = chunk->first, .begin = chunk->begin};
    if (!read(again) || again.count != chunk->count || again.end != chunk->end) fail_changed();
    again.used = draws_;
    return *chunk = again;
  }

  // Loads all samples that the buffer contains for outputs `begin` to `end`, in the order of the
  // files. Returns how many samples are known then.
  int64_t fill(int64_t epoch, int64_t begin, int64_t end) const {
    const int64_t known = reach_locked(end + options_.buffer);
    const bool continues =
        epoch == epoch_ && begin >= next_ && begin - next_ <= 16 * options_.buffer;
    int64_t first = (continues ? next_ : begin) + options_.buffer;
    if (epoch_ >= 0 && epoch != epoch_) check_files();
    if (!continues) {
      std::vector<int64_t> content = buffer_.content_at(epoch, begin, known);
      std::ranges::sort(content);
      for (const int64_t sample : content) static_cast<void>(load(sample));
    }
    while (first < known) first = load(first).after();
    epoch_ = epoch;
    next_ = begin;
    return known;
  }

  // Keeps the samples in the buffer, those after it, and those of recent draws, because several
  // threads prepare updates, possibly out of order.
  void drop_samples(int64_t known) const {
    constexpr int64_t kDrawsAgo = 16;
    std::set<int64_t> held;
    for (const int64_t sample : buffer_.content_at(epoch_, next_, known)) {
      held.insert(std::prev(chunks_.upper_bound(sample))->first);
    }
    for (auto& [first, chunk] : chunks_) {
      const bool is_ahead = chunk.after() > next_ + options_.buffer;
      if (is_ahead || chunk.used > draws_ - kDrawsAgo || held.contains(first)) continue;
      chunk.samples.reset();
    }
  }

  // Returns the first and the last sample in the buffer before an output.
  [[nodiscard]] std::pair<int64_t, int64_t> needed_at(int64_t epoch, int64_t position) const {
    const int64_t known = reach_locked(position + options_.buffer);
    const std::vector<int64_t>& content = saved_buffer_.content_at(epoch, position, known);
    if (content.empty()) return {0, 0};
    const auto [oldest, newest] = std::ranges::minmax(content);
    return {oldest, newest};
  }

  // Checks between two passes that the files have not changed.
  void check_files() const {
    const std::vector<FileIdentity> now = identify_files(rows_.files());
    const auto same = [](const FileIdentity& one, const FileIdentity& other) {
      return one.size == other.size && one.samples == other.samples;
    };
    if (!std::ranges::equal(now, files_, same)) fail_changed();
  }

  StreamSource source_;
  StreamOptions options_;
  mutable RowSource rows_;
  std::vector<FileIdentity> files_;
  Json identity_;
  int64_t limit_;  // maximum number of samples
  int64_t choices_ = 1;
  int64_t token_types_ = 1;

  mutable std::mutex mutex_;                 // guards all members below
  mutable std::map<int64_t, Chunk> chunks_;  // by their first sample
  mutable int64_t known_ = 0;                // samples known to exist
  mutable std::optional<int64_t> total_;     // samples per epoch
  mutable std::optional<RowPosition> reading_at_ = RowPosition{};
  mutable ShuffleBuffer buffer_;
  mutable ShuffleBuffer saved_buffer_;  // for earlier outputs
  mutable int64_t epoch_ = -1;          // of the last output that was drawn
  mutable int64_t next_ = 0;            // output
  mutable int64_t draws_ = 0;
  mutable bool has_loaded_ = false;  // since samples were dropped
  mutable bool polls_ = false;       // reading polls for signals
  mutable size_t forget_above_ = 0;  // chunks
  mutable double bytes_per_sample_ = 0.0;
};

}  // namespace

std::shared_ptr<const SampleStream> make_sample_stream(StreamSource source,
                                                       const StreamOptions& options) {
  return std::make_shared<const FileStream>(std::move(source), options);
}

}  // namespace finetune
