// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::MemoryFile;
using finetune::testing::MemoryWriter;
using finetune::testing::message_of;
using ::testing::HasSubstr;
using ::testing::Not;

FileRecord record_of(const std::string& content) {
  MemoryWriter writer;
  RecordingFile recording(writer);
  // Pieces that are not aligned to the blocks.
  for (size_t done = 0; done < content.size(); done += 1'000'003) {
    static_cast<WritableFile&>(recording).write(std::string_view(content).substr(done, 1'000'003));
  }
  EXPECT_EQ(writer.content(), content);
  return recording.record();
}

Manifest example() {
  Manifest manifest{.run_id = "run-1", .step = 500, .created_unix = 1'700'000'000, .files = {}};
  manifest.files["model.safetensors"] = record_of(std::string(3 * kBlockBytes / 2, 'x'));
  manifest.files["empty.json"] = record_of("");
  return manifest;
}

// Replaces one part of the text and, where the result is JSON, its checksum by the right one.
std::string forged(const std::string& part, const std::string& by) {
  std::string text = manifest_text(example());
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  text.replace(at, part.size(), by);
  auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return text;
  json.erase("checksum");
  json["checksum"] = hash_hex(json.dump());
  return json.dump(1) + "\n";
}

TEST(Manifest, ReadsBackWhatWasWritten) {
  EXPECT_EQ(parse_manifest(manifest_text(example()), "m"), example());
}

TEST(Manifest, RefusesEveryFlippedBitAndEveryCut) {
  const std::string good = manifest_text(example());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THROW((void)parse_manifest(damaged, "m"), Error) << i;
    }
    EXPECT_THROW((void)parse_manifest(good.substr(0, i), "m"), Error) << i;
  }
  EXPECT_THROW((void)parse_manifest(good + " ", "m"), Error);
}

TEST(Manifest, RefusesHostileContent) {
  for (const auto& [part, by] : std::vector<std::pair<std::string, std::string>>{
           {"\"model.safetensors\"", "\"../model.safetensors\""},
           {"\"model.safetensors\"", "\"/etc/passwd\""},
           {"\"model.safetensors\"", "\"manifest.json\""},
           {"\"model.safetensors\"", "\".hidden\""},
           {"\"bytes\": 6291456", "\"bytes\": 18446744073709551615"},
           {"\"bytes\": 6291456", "\"bytes\": 9223372036854775807"},
           {"\"bytes\": 6291456", "\"bytes\": -1"},
           {"\"bytes\": 6291456", "\"bytes\": 1.5"},
           {"\"bytes\": 6291456", "\"bytes\": \"6291456\""},
           {"\"step\": 500", "\"step\": -500"},
           {"\"step\": 500", "\"step\": null"},
           {"\"run_id\": \"run-1\"", "\"run_id\": \"../run\""},
           {"\"run_id\": \"run-1\"", "\"run_id\": 1"},
           {"\"files\": {", "\"files\": [{"},
           {"\"blocks\": []", "\"blocks\": {}"},
           {"\"step\": 500", "\"step\": 500, \"more\": 500"}}) {
    EXPECT_THROW((void)parse_manifest(forged(part, by), "m"), Error) << by;
  }
  EXPECT_EQ(parse_manifest(forged("\"step\": 500", "\"step\": 501"), "m").step, 501);
  for (const char* text : {"", "{}", "[]", "null", "{\"format_version\":1}", "{", "\xff"}) {
    EXPECT_THROW((void)parse_manifest(text, "m"), Error) << text;
  }
  EXPECT_THROW((void)parse_manifest(std::string(100'000, '['), "m"), Error);
}

TEST(Manifest, NamesAnUnknownVersion) {
  EXPECT_THAT(message_of<Error>([] {
                (void)parse_manifest(forged("\"format_version\": 1", "\"format_version\": 2"), "m");
              }),
              HasSubstr("version 2"));
  EXPECT_THROW((void)parse_manifest(forged("\"format_version\": 1", "\"format_version\": 2"), "m"),
               NewerFormat);
  // A damaged digit is no other version.
  std::string damaged = manifest_text(example());
  damaged.replace(damaged.find("\"format_version\": 1"), 19, "\"format_version\": 3");
  EXPECT_THAT(message_of<Error>([&] { (void)parse_manifest(damaged, "m"); }),
              Not(HasSubstr("newer version")));
}

TEST(VerifyFile, FindsTheDamagedBlock) {
  std::string content(2 * kBlockBytes + 5, 'x');
  const FileRecord record = record_of(content);
  EXPECT_EQ(record.blocks.size(), 3U);
  verify_file(MemoryFile(content), record, "f");
  for (const size_t position : {size_t{0}, size_t{kBlockBytes - 1}, size_t{kBlockBytes},
                                size_t{2 * kBlockBytes}, content.size() - 1}) {
    std::string damaged = content;
    damaged[position] ^= 1;
    EXPECT_GOLDEN(message_of<Error>([&] { verify_file(MemoryFile(damaged), record, "f"); }));
  }
  EXPECT_THROW(verify_file(MemoryFile(content + "x"), record, "f"), Error);
  EXPECT_THROW(verify_file(MemoryFile(content.substr(1)), record, "f"), Error);
}

}  // namespace
}  // namespace finetune::checkpoint
