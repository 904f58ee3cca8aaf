// SPDX-License-Identifier: MIT
#include "data/cache/token_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/cache/block_sink.h"
#include "data/cache/build_lock.h"
#include "data/cache/cache_failure.h"
#include "data/cache/file_contents.h"
#include "data/cache/file_identity.h"
#include "data/cache/token_manifest.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/base/version.h"
#include "finetune/data/cache_entries.h"
#include "finetune/data/data_files.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kManifest = "tokens.json";
constexpr const char* kBuilding = "building.json";
constexpr const char* kSeen = "seen.json";

Json key_document(const TokenSource& source, const std::vector<FileIdentity>& files) {
  Hasher tokenizer;
  for (const auto& [name, content] : source.tokenizer.files()) {
    tokenizer.update(name);
    tokenizer.update(content);
  }
  Json list = Json::array();
  for (const FileIdentity& file : files) {
    list.push_back(
        {{"ending", ending_of(file.path)}, {"size", file.size}, {"samples", file.samples}});
  }
  return {{"format", 1},
          {"version", kVersion},
          {"reading", kReadingVersion},
          {"tokenizer", tokenizer.hex()},
          {"tokens", source.tokenizer.size()},
          {"options", source.options},
          {"files", std::move(list)}};
}

class TokenCache {
 public:
  TokenCache(const TokenCacheOptions& options, const TokenSource& source)
      : options_(options),
        source_(source),
        names_(expand_files(source.files, source.key)),
        files_(identify_files(names_, options.show)) {
    document_ = key_document(source, files_);
    key_ = hash_hex(document_.dump());
    folder_ = join_path(options.folder, key_);
  }

  // Returns the existing cache; null if there is none, with the reason in `wrong` if it is invalid.
  [[nodiscard]] std::shared_ptr<const CachedTokens> find(std::string& wrong) const;
  [[nodiscard]] std::shared_ptr<const CachedTokens> build();
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Copy from and to the second location. fetch() never overwrites an entry that is being built.
  [[nodiscard]] bool fetch() const {
    return options_.fetch && FileSystem::local().type(folder_) == FileType::kMissing &&
           options_.fetch(key_, folder_);
  }
  void keep() const {
    if (options_.keep) options_.keep(folder_, key_);
  }

 private:
  [[nodiscard]] std::string path(const char* name) const { return join_path(folder_, name); }
  [[nodiscard]] std::optional<TokenManifest> manifest(std::string& wrong) const;
  [[nodiscard]] std::shared_ptr<const CachedTokens> map(const TokenManifest& manifest) const;
  [[nodiscard]] bool has_same_content(const TokenManifest& manifest) const;
  void note(const TokenManifest& manifest) const;
  [[nodiscard]] StepName hashing() const {
    return {.phase = "hash", .doing = "hashing the files of " + source_.key};
  }
  [[nodiscard]] bool keeps_blocks() const;
  void clear() const;
  void make_room() const;
  [[nodiscard]] std::vector<std::string> fill(BlockSink& sink) const;
  void discard() const;

  const TokenCacheOptions& options_;
  const TokenSource& source_;
  std::vector<std::string> names_;
  std::vector<FileIdentity> files_;
  Json document_;
  std::string key_;
  std::string folder_;
};

std::optional<TokenManifest> TokenCache::manifest(std::string& wrong) const {
  const std::string file = path(kManifest);
  if (FileSystem::local().type(file) == FileType::kMissing) return std::nullopt;
  try {
    TokenManifest found = read_token_manifest(file);
    if (found.files.size() == files_.size()) return found;
    wrong = "'" + file + "' speaks of other files";
  } catch (const Error& error) {
    wrong = error.what();
  }
  return std::nullopt;
}

// Compares content hashes only: sizes and samples are equal, otherwise the key would differ.
bool TokenCache::has_same_content(const TokenManifest& manifest) const {
  const std::vector<FileIdentity> seen = read_identities(path(kSeen));
  std::vector<size_t> touched;
  uint64_t bytes = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i] == manifest.files[i].identity || (i < seen.size() && files_[i] == seen[i])) {
      continue;
    }
    touched.push_back(i);
    bytes += files_[i].size;
  }
  if (touched.empty()) return true;
  LongStep step = LongStep::of_bytes(hashing(), bytes, options_.show);
  const auto add = [&](uint64_t more) { step.add_bytes(more); };
  for (const size_t i : touched) {
    if (hash_of_file(names_[i], add) != manifest.files[i].hash) return false;
  }
  try {
    FileSystem::local().write_atomically(path(kSeen), identities_json(files_).dump(1) + "\n");
  } catch (const Error&) {  // read-only folder: the content is hashed again next time
  }
  return true;
}

// Stores the hashes of files that were read anyway, for later checks. Requires: their content has
// not changed since `manifest` was written.
void TokenCache::note(const TokenManifest& manifest) const {
  std::vector<std::string> hashes;
  for (const TokenManifest::File& file : manifest.files) hashes.push_back(file.hash);
  note_contents(options_, names_, hashes);
}

std::shared_ptr<const CachedTokens> TokenCache::map(const TokenManifest& manifest) const {
  auto use = std::make_shared<const EntryUse>(folder_);
  std::vector<TokenBlock> blocks;
  int64_t rows = 0;
  int64_t pieces = 0;
  for (const TokenManifest::Block& expected : manifest.blocks) {
    blocks.emplace_back(join_path(folder_, token_block_name(std::ssize(blocks))), source_.limits);
    const TokenBlock& block = blocks.back();
    const TokenBlockPosition& position = block.position();
    if (position.key != key_ || position.number != std::ssize(blocks) - 1 ||
        position.rows_begin != rows || block.bytes() != expected.bytes ||
        block.checksum() != expected.checksum) {
      throw Error(ErrorKind::kData, "'" + block.path() + "' is not the block that was written");
    }
    rows = position.rows_end;
    pieces += block.pieces();
  }
  const int64_t looked_at = options_.bytes_checked_at_start / TokenBlock::kPiece;
  const int64_t stride = std::max<int64_t>(1, pieces / std::max<int64_t>(1, looked_at));
  int64_t next = looked_at > 0 ? 0 : pieces;
  LongStep step({.phase = "check", .doing = "checking tokenised data", .unit = "piece"},
                looked_at > 0 ? (pieces + stride - 1) / stride : 0, options_.show);
  for (const TokenBlock& block : blocks) {
    for (; next < block.pieces(); next += stride) {
      block.check(next);
      step.advance();
    }
    next -= block.pieces();
    block.release();
  }
  auto data =
      std::make_shared<const CachedTokens>(std::move(blocks), manifest.totals, std::move(use));
  if (source_.accept) source_.accept(*data);
  return data;
}

std::shared_ptr<const CachedTokens> TokenCache::find(std::string& wrong) const {
  const std::optional<TokenManifest> found = manifest(wrong);
  if (!found) return nullptr;
  if (!has_same_content(*found)) {
    wrong = "a file of " + source_.key + " has changed since it was tokenised";
    return nullptr;
  }
  note(*found);
  try {
    return map(*found);
  } catch (const Error& error) {
    wrong = error.what();
    return nullptr;
  }
}

// Whether the blocks of an interrupted or corrupt cache can be kept: the files are unchanged since
// the build began.
bool TokenCache::keeps_blocks() const {
  if (options_.overwrite) return false;
  std::string wrong;
  if (const std::optional<TokenManifest> found = manifest(wrong)) return has_same_content(*found);
  return read_identities(path(kBuilding)) == files_;
}

// Deletes everything but the locks, for which others may be waiting.
void TokenCache::clear() const {
  FileSystem& files = FileSystem::local();
  for (const char* name : {kManifest, kSeen}) {
    if (files.exists(path(name))) files.remove_file(path(name));
  }
  for (const std::string& name : files.list(folder_)) {
    if (name != kBuildLock && name != kUsed) files.remove_tree(join_path(folder_, name));
  }
}

void TokenCache::make_room() const {
  FileSystem& files = FileSystem::local();
  const bool keeps = keeps_blocks();
  if (!keeps) clear();
  files.write_atomically(path(kBuilding), identities_json(files_).dump(1) + "\n");
  if (files.exists(path(kManifest))) files.remove_file(path(kManifest));
  for (const std::string& name : files.list(folder_)) {
    if (name.starts_with(".tmp-")) files.remove_file(join_path(folder_, name));
  }
}

// Deletes an entry that will not be completed; best effort. It is renamed first, so that a process
// that waits for the lock starts in a folder that nobody deletes.
void TokenCache::discard() const {
  try {
    const std::string gone = format_text("{}.tmp-{}", folder_, ::getpid());
    FileSystem::local().rename(folder_, gone);
    FileSystem::local().remove_tree(gone);
  } catch (const Error&) {
  }
}

// Reads and tokenises the files, and hashes them concurrently. Returns the hashes.
std::vector<std::string> TokenCache::fill(BlockSink& sink) const {
  constexpr std::chrono::milliseconds kBetweenLooks(50);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> hashed = 0;
  auto hashes = std::async(std::launch::async, [&] {
    const auto add = [&](uint64_t bytes) {
      if (stop) throw Interrupted(hashing().doing);
      hashed += bytes;
    };
    std::vector<std::string> found;
    for (const std::string& file : names_) found.push_back(hash_of_file(file, add));
    return found;
  });
  try {
    source_.read(sink);
    uint64_t bytes = 0;
    for (const FileIdentity& file : files_) bytes += file.size;
    LongStep step = LongStep::of_bytes(hashing(), bytes, options_.show);
    const auto look = [&] { step.reach(static_cast<int64_t>(hashed)); };
    while (hashes.wait_for(kBetweenLooks) != std::future_status::ready) look();
    look();
  } catch (...) {
    stop = true;
    throw;
  }
  return hashes.get();
}

std::shared_ptr<const CachedTokens> TokenCache::build() {
  const BuildLock lock(path(kBuildLock), source_.key);
  if (lock.has_waited() || !options_.overwrite) {  // the previous owner may have built it
    std::string wrong;
    if (auto data = find(wrong)) return data;
  }
  on_cache([&] { make_room(); });
  BlockSink sink(folder_, key_, options_.tokens_of_block);
  if (const int64_t blocks = sink.resume(source_.limits, options_.show); blocks > 0) {
    log::info(format_text("{}: tokenising continues after row {}", source_.key, sink.rows()));
  }
  try {
    const std::vector<std::string> hashes = fill(sink);
    check_unchanged(names_, files_, source_.key, options_.show);
    TokenManifest made{.key = document_, .blocks = sink.blocks(), .files = {}, .totals = {}};
    for (size_t i = 0; i < files_.size(); ++i) made.files.push_back({files_[i], hashes[i]});
    on_cache([&] {
      made.totals = total_of_blocks(sink.paths(), source_.limits, options_.show);
      FileSystem::local().write_atomically(path(kManifest), token_manifest_text(made));
      FileSystem::local().remove_file(path(kBuilding));
    });
    note(made);
    return on_cache([&] { return map(made); });
  } catch (const Error&) {  // the data will be different next time
    discard();
    throw;
  } catch (const CacheFailure&) {  // free the space of the incomplete entry
    discard();
    throw;
  }
}

void tidy_up(const TokenCacheOptions& options) {
  const CacheContent content = remove_unused_entries(options.folder, options.kept_unused);
  const auto megabytes = [](uint64_t bytes) {
    return format_text("{} MB", (bytes + 999'999) / 1'000'000);
  };
  const auto entries = [](int64_t count) {
    return format_text("{} {}", count, count == 1 ? "entry" : "entries");
  };
  log::info(format_text("'{}' holds {} of tokenised data in {}", options.folder,
                        megabytes(content.bytes), entries(content.entries)));
  if (content.removed == 0) return;
  const auto days =
      std::chrono::duration_cast<std::chrono::hours>(options.kept_unused).count() / 24;
  log::info(format_text("removed {} of {} that were not used for {} days", entries(content.removed),
                        megabytes(content.removed_bytes), days));
}

}  // namespace

std::shared_ptr<const CachedTokens> read_cached(const TokenCacheOptions& options,
                                                const TokenSource& source) {
  if (options.folder.empty()) return nullptr;
  TokenCache cache(options, source);
  std::string wrong;
  try {
    std::shared_ptr<const CachedTokens> data = options.overwrite ? nullptr : cache.find(wrong);
    if (!data && !options.overwrite && wrong.empty() && cache.fetch()) data = cache.find(wrong);
    if (data) {
      cache.keep();
      log::info(source.key + ": tokenised before, taken from '" + cache.folder() + "'");
      return data;
    }
    if (!wrong.empty()) {
      log::warning(source.key +
                   ": what was tokenised before cannot be used and is rebuilt: " + wrong);
    }
    data = cache.build();
    cache.keep();
    log::info(source.key + ": the tokenised data are kept in '" + cache.folder() + "'");
    tidy_up(options);
    return data;
  } catch (const CacheFailure& failure) {
    if (options.required) {
      throw Error(ErrorKind::kIo,
                  source.key + ": tokenised data cannot be kept in cache_dir: " + failure.what() +
                      "; make room there, or name a folder that can be written");
    }
    log::warning(source.key + ": tokenised data cannot be kept in cache_dir and stay in memory: " +
                 failure.what());
    return nullptr;
  }
}

void read_unchanged(const TokenSource& source, const std::function<void()>& read) {
  const std::vector<std::string> names = expand_files(source.files, source.key);
  std::vector<FileIdentity> before;
  for (const std::string& name : names) {
    interrupt::throw_if_requested("reading and tokenising " + source.key);
    before.push_back(identify_file(name));
  }
  read();
  check_unchanged(names, before, source.key);
}

TokenContent read_in_memory(const TokenCacheOptions& options, const TokenSource& source) {
  MemorySink sink(MemoryLimit(options, source.key));
  read_unchanged(source, [&] { source.read(sink); });
  return sink.content();
}

}  // namespace finetune
