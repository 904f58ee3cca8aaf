// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/cached_tokens.h"
#include "data/memory_limit.h"
#include "finetune/data/token_cache.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// Where a task's reader puts its samples.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Rows of the range that are in the cache already; the reader skips them.
  [[nodiscard]] virtual int64_t rows() const = 0;
  [[nodiscard]] virtual int64_t samples() const = 0;
  // Whether this number of tokens is enough for a take().
  [[nodiscard]] virtual bool wants(int64_t tokens) const = 0;
  // The samples of the next `rows` rows, the blank ones included.
  virtual void take(TokenContent content, int64_t rows, std::string extra) = 0;
  // Called between blocks with what was not taken yet, and the fraction of the files that was read.
  // Throws Error where there is no room for it.
  virtual void check(const TokenContent& content, double fraction) const {
    static_cast<void>(content);
    static_cast<void>(fraction);
  }
};

// Keeps all of it in memory.
class MemorySink final : public TokenSink {
 public:
  explicit MemorySink(std::optional<MemoryLimit> limit = std::nullopt) : limit_(std::move(limit)) {}
  [[nodiscard]] int64_t rows() const override { return 0; }
  [[nodiscard]] int64_t samples() const override {
    return (std::ssize(content_.offsets) - 1) / content_.choices;
  }
  [[nodiscard]] bool wants(int64_t) const override { return false; }
  void take(TokenContent content, int64_t, std::string) override { content_ = std::move(content); }
  void check(const TokenContent& content, double fraction) const override {
    if (limit_) limit_->check(content, fraction);
  }

  [[nodiscard]] TokenContent content() { return std::move(content_); }

 private:
  std::optional<MemoryLimit> limit_;
  TokenContent content_;
};

// What is to be read, and how.
struct TokenSource {
  std::string key;                 // the configuration key that names the files
  std::vector<std::string> files;  // or patterns
  // Everything except the files' content that the samples depend on.
  const nlohmann::ordered_json& options;
  const Tokenizer& tokenizer;
  TokenBlockLimits limits;
  std::function<void(TokenSink&)> read;
  // Reads the additional data of a task from the blocks. Throws Error if it is not what was stored;
  // the cache is then built again.
  std::function<void(const CachedTokens&)> accept = {};
};

// The samples from the cache, which is first built or completed if needed. Null if no cache is
// requested, or with a warning if it cannot be used. Throws what `read` throws, Error(kData) for
// files that change while they are read, Error(kIo) if a required cache cannot be used, and
// Interrupted.
[[nodiscard]] std::shared_ptr<const CachedTokens> read_cached(const TokenCacheOptions& options,
                                                              const TokenSource& source);

// The samples in memory: what `source.read` makes of the files, which must not change meanwhile.
// Throws what it throws, Error(kData) for files that change, and Error(kIo) where the samples
// exceed the memory that `options` grants them.
[[nodiscard]] TokenContent read_in_memory(const TokenCacheOptions& options,
                                          const TokenSource& source);

// Calls `read`, which reads the files. Throws Error(kData) where one changes meanwhile.
void read_unchanged(const TokenSource& source, const std::function<void()>& read);

}  // namespace finetune
