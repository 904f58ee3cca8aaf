// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/layout.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "finetune/base/text.h"

namespace finetune::checkpoint {
namespace {

constexpr std::string_view kCheckpoint = "checkpoint-";
constexpr std::string_view kStaging = ".tmp-checkpoint-";
constexpr std::string_view kFetch = ".fetch-checkpoint-";
constexpr std::string_view kTrash = ".trash-checkpoint-";
constexpr std::string_view kTemporary = ".tmp-";

// Removes a prefix; returns false if the text does not start with it.
bool take(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Parses a number as written by std::to_string: no sign, no leading zero.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || text.front() == '-' || (text.front() == '0' && digits > 1)) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  return value;
}

bool is_identifier_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

const char* suffix(QuarantineReason reason) {
  return reason == QuarantineReason::kBad ? ".bad-" : ".old-";
}

}  // namespace

std::string checkpoint_name(int64_t step) { return format_text("{}{}", kCheckpoint, step); }

std::optional<int64_t> parse_checkpoint_name(std::string_view name) {
  if (!take(name, kCheckpoint)) return std::nullopt;
  const std::optional<int64_t> step = take_number(name);
  return name.empty() ? step : std::nullopt;
}

std::string quarantine_name(const QuarantineName& name) {
  return format_text("{}{}{}", checkpoint_name(name.step), suffix(name.reason), name.number);
}

std::optional<QuarantineName> parse_quarantine_name(std::string_view name) {
  if (!take(name, kCheckpoint)) return std::nullopt;
  const std::optional<int64_t> step = take_number(name);
  if (!step) return std::nullopt;
  for (const QuarantineReason reason : {QuarantineReason::kBad, QuarantineReason::kOld}) {
    if (!take(name, suffix(reason))) continue;
    const std::optional<int64_t> number = take_number(name);
    if (!number || !name.empty()) return std::nullopt;
    return QuarantineName{.step = *step, .reason = reason, .number = *number};
  }
  return std::nullopt;
}

std::string staging_name(int64_t step, std::string_view run_id, std::string_view random) {
  return format_text("{}{}.{}.{}", kStaging, step, run_id, random);
}

std::string fetch_name(int64_t step, std::string_view run_id) {
  return format_text("{}{}.{}", kFetch, step, run_id);
}

bool is_fetch_name(std::string_view name) {
  return take(name, kFetch) && take_number(name) && take(name, ".") && is_identifier(name);
}

std::string trash_name(int64_t step, std::string_view random) {
  return format_text("{}{}.{}", kTrash, step, random);
}

bool is_leftover_name(std::string_view name) {
  const bool staging = take(name, kStaging);
  if (!staging && !take(name, kTrash)) return false;
  if (!take_number(name) || !take(name, ".")) return false;
  if (staging) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || !is_identifier(name.substr(0, dot))) return false;
    name.remove_prefix(dot + 1);
  }
  return is_identifier(name);
}

bool is_temporary_file_name(std::string_view name) {
  if (!take(name, kTemporary)) return false;
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) return false;
  return name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), is_identifier_character);
}

std::string random_identifier() {
  std::random_device device;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int word = 0; word < 2; ++word) {
    unsigned value = device();
    for (int i = 0; i < 8; ++i, value >>= 4) text += kDigits[value & 15];
  }
  return text;
}

namespace {

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_identifier_character(c) || c == '.'; });
}

}  // namespace

bool is_checkpoint_file_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_plain_file_name(name);
  return is_plain_file_name(name.substr(0, slash)) && is_plain_file_name(name.substr(slash + 1));
}

void make_folder_of(FileSystem& files, const std::string& folder, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || files.object_store() != nullptr) return;
  const std::string path = join_path(folder, name.substr(0, slash));
  if (!files.exists(path)) files.make_directory(path);
}

std::map<std::string, FileSystem::Entry> files_below(FileSystem& files, const std::string& folder) {
  std::map<std::string, FileSystem::Entry> found = files.entries(folder);
  std::vector<std::string> inner;
  for (const auto& [name, entry] : found) {
    if (entry.type == FileType::kDirectory) inner.push_back(name);
  }
  for (const std::string& name : inner) {
    found.erase(name);
    for (const auto& [below, entry] : files.entries(join_path(folder, name))) {
      found.emplace(name + "/" + below, entry);
    }
  }
  return found;
}

bool is_tree_path(std::string_view path) {
  for (size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/')) {
    if (!is_plain_file_name(path.substr(0, slash))) return false;
    path.remove_prefix(slash + 1);
  }
  return is_plain_file_name(path);
}

}  // namespace finetune::checkpoint
