// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/cache/cached_tokens.h"
#include "data/cache/file_identity.h"

namespace finetune {

// The content of a complete token cache.
struct TokenManifest {
  struct Block {
    uint64_t bytes = 0;
    uint64_t checksum = 0;  // of its header
  };
  struct File {
    FileIdentity identity;  // when it was read
    std::string hash;       // of every byte
  };
  nlohmann::ordered_json key;  // determines the cache's name
  std::vector<Block> blocks = {};
  std::vector<File> files = {};
  CachedTotals totals = {};
};

[[nodiscard]] std::string token_manifest_text(const TokenManifest& manifest);
// Throws Error(kData); `where` is the prefix of every message.
[[nodiscard]] TokenManifest parse_token_manifest(std::string_view text, const std::string& where);
[[nodiscard]] TokenManifest read_token_manifest(const std::string& path);  // also Error(kIo)

}  // namespace finetune
