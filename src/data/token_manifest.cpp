// SPDX-License-Identifier: MIT
#include "data/token_manifest.h"

#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kManifestFormat = 1;
constexpr uint64_t kMostManifestBytes = uint64_t{256} << 20;

Json totals_json(const CachedTotals& totals) {
  return {{"sequences", totals.sequences},    {"tokens", totals.tokens},
          {"longest", totals.longest},        {"token_types", totals.token_types},
          {"has_values", totals.has_values},  {"has_answers", totals.has_answers},
          {"fingerprint", totals.fingerprint}};
}

CachedTotals parse_totals(const Json& json) {
  return {.sequences = json.at("sequences").get<int64_t>(),
          .tokens = json.at("tokens").get<int64_t>(),
          .longest = json.at("longest").get<int64_t>(),
          .token_types = json.at("token_types").get<int64_t>(),
          .has_values = json.at("has_values").get<bool>(),
          .has_answers = json.at("has_answers").get<bool>(),
          .fingerprint = json.at("fingerprint").get<std::string>()};
}

TokenManifest parse_content(const Json& content) {
  TokenManifest manifest{.key = content.at("key")};
  for (const Json& block : content.at("blocks")) {
    manifest.blocks.push_back({.bytes = block.at("bytes").get<uint64_t>(),
                               .checksum = block.at("checksum").get<uint64_t>()});
  }
  for (const Json& file : content.at("files")) {
    manifest.files.push_back({parse_identity(file.at("identity")), file.at("hash")});
  }
  manifest.totals = parse_totals(content.at("totals"));
  return manifest;
}

}  // namespace

std::string token_manifest_text(const TokenManifest& manifest) {
  Json blocks = Json::array();
  for (const TokenManifest::Block& block : manifest.blocks) {
    blocks.push_back({{"bytes", block.bytes}, {"checksum", block.checksum}});
  }
  Json files = Json::array();
  for (const TokenManifest::File& file : manifest.files) {
    files.push_back({{"identity", identity_json(file.identity)}, {"hash", file.hash}});
  }
  Json content = {{"key", manifest.key},
                  {"totals", totals_json(manifest.totals)},
                  {"files", std::move(files)},
                  {"blocks", std::move(blocks)}};
  const std::string checksum = hash_hex(content.dump());
  return Json{{"format", kManifestFormat}, {"checksum", checksum}, {"content", std::move(content)}}
             .dump(1) +
         "\n";
}

TokenManifest parse_token_manifest(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  try {
    const Json& content = json.at("content");
    if (json.at("format").get<int64_t>() != kManifestFormat ||
        json.at("checksum").get<std::string>() != hash_hex(content.dump())) {
      throw Error(ErrorKind::kData, where + " is damaged");
    }
    return parse_content(content);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kData, where + " is no manifest of tokenised data: " + error.what());
  }
}

TokenManifest read_token_manifest(const std::string& path) {
  return parse_token_manifest(FileSystem::local().read_all(path, kMostManifestBytes),
                              "'" + path + "'");
}

}  // namespace finetune
