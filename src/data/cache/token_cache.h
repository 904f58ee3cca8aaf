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

#include "data/cache/cached_tokens.h"
#include "data/cache/memory_limit.h"
#include "finetune/data/token_cache.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// Receives the samples that a task's reader makes.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Number of rows of the range that are in the cache already; the reader skips them.
  [[nodiscard]] virtual int64_t rows() const = 0;
  [[nodiscard]] virtual int64_t samples() const = 0;
  // Whether `tokens` tokens are enough for a call of take().
  [[nodiscard]] virtual bool wants(int64_t tokens) const = 0;
  // Takes the samples of the next `rows` rows, including blank ones.
  virtual void take(TokenContent content, int64_t rows, std::string extra) = 0;
  // Called between blocks with the samples that were not taken yet, and the fraction of the files
  // that was read. Throws Error if memory is insufficient.
  virtual void check(const TokenContent& content, double fraction) const {
    static_cast<void>(content);
    static_cast<void>(fraction);
  }
};

// Keeps all samples in memory.
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

// What to read, and how.
struct TokenSource {
  std::string key;                 // the configuration key that names the files
  std::vector<std::string> files;  // or patterns
  // Everything except the files' content that samples depend on.
  const nlohmann::ordered_json& options;
  const Tokenizer& tokenizer;
  TokenBlockLimits limits;
  std::function<void(TokenSink&)> read;
  // Reads the additional data of a task from the blocks. Throws Error if it is invalid; the cache
  // is then built again.
  std::function<void(const CachedTokens&)> accept = {};
};

// Returns the samples from the cache, which is first built or completed if needed. Null if no cache
// is requested, or with a warning if it cannot be used. Throws what `read` throws, Error(kData) for
// files that change while they are read, Error(kIo) if a required cache cannot be used, and
// Interrupted.
[[nodiscard]] std::shared_ptr<const CachedTokens> read_cached(const TokenCacheOptions& options,
                                                              const TokenSource& source);

// Returns the samples in memory. Throws what `source.read` throws, Error(kData) if files change
// meanwhile, and Error(kIo) if the samples exceed the memory that `options` allows.
[[nodiscard]] TokenContent read_in_memory(const TokenCacheOptions& options,
                                          const TokenSource& source);

// Calls `read`, which reads the files. Throws Error(kData) if one changes meanwhile.
void read_unchanged(const TokenSource& source, const std::function<void()>& read);

}  // namespace finetune
