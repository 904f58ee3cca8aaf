// SPDX-License-Identifier: MIT
#include "data/cache/token_manifest.h"

#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"

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

CachedTotals parse_totals(const JsonFields& fields) {
  return {.sequences = fields.integer("sequences", {.low = 0}),
          .tokens = fields.integer("tokens", {.low = 0}),
          .longest = fields.integer("longest", {.low = 0}),
          .token_types = fields.integer("token_types"),
          .has_values = fields.flag("has_values"),
          .has_answers = fields.flag("has_answers"),
          .fingerprint = fields.text("fingerprint")};
}

TokenManifest parse_content(const JsonFields& content) {
  TokenManifest manifest{.key = content.at("key")};
  for (const JsonFields& block : content.items("blocks")) {
    manifest.blocks.push_back(
        {.bytes = block.unsigned_integer("bytes"), .checksum = block.unsigned_integer("checksum")});
  }
  for (const JsonFields& file : content.items("files")) {
    manifest.files.push_back({parse_identity(file.fields("identity")), file.text("hash")});
  }
  manifest.totals = parse_totals(content.fields("totals"));
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
  const JsonFields fields(json, where);
  const bool is_intact = fields.integer("format") == kManifestFormat &&
                         fields.text("checksum") == hash_hex(fields.object("content").dump());
  if (!is_intact) throw Error(ErrorKind::kData, where + " is damaged");
  return parse_content(fields.fields("content"));
}

TokenManifest read_token_manifest(const std::string& path) {
  return parse_token_manifest(FileSystem::local().read_all(path, kMostManifestBytes),
                              "'" + path + "'");
}

}  // namespace finetune
