// SPDX-License-Identifier: MIT
#include "config/reading/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace finetune {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }

std::optional<std::string> home() {
  if (const char* variable = std::getenv("HOME"); variable != nullptr && *variable != '\0') {
    return variable;
  }
  const passwd* user = getpwuid(getuid());
  if (user == nullptr || user->pw_dir == nullptr || *user->pw_dir == '\0') return std::nullopt;
  return user->pw_dir;
}

// Returns the variable's name after the '$' at `i`, and sets `end` to its end; empty if there is
// none.
std::string_view variable_name(std::string_view text, size_t i, size_t& end) {
  const bool braces = i + 1 < text.size() && text[i + 1] == '{';
  const size_t start = i + (braces ? 2 : 1);
  end = start;
  if (start >= text.size() || !is_name_start(text[start])) return {};
  while (end < text.size() && is_name_part(text[end])) ++end;
  const std::string_view name = text.substr(start, end - start);
  if (!braces) return name;
  if (end >= text.size() || text[end] != '}') return {};
  ++end;
  return name;
}

}  // namespace

std::optional<std::string> expand(std::string_view text, std::string& problem) {
  std::string result;
  size_t i = 0;
  if (text.starts_with('~')) {
    if (text.size() > 1 && text[1] != '/') {
      problem = "begins with '" + std::string(text.substr(0, text.find('/'))) +
                "'; only '~/' is known: write the folder out";
      return std::nullopt;
    }
    const std::optional<std::string> folder = home();
    if (!folder) {
      problem = "begins with '~', but HOME is not set";
      return std::nullopt;
    }
    result = *folder;
    i = 1;
  }
  while (i < text.size()) {
    size_t end = 0;
    const std::string_view name = text[i] == '$' ? variable_name(text, i, end) : std::string_view();
    if (name.empty()) {
      result += text[i++];
      continue;
    }
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) {
      problem = "names the variable $" + std::string(name) + ", which is not set";
      return std::nullopt;
    }
    result += value;
    i = end;
  }
  return result;
}

std::string problem_of_location(std::string_view text, PathKind kind) {
  if (const size_t scheme = text.find("://");
      kind == PathKind::kPath && scheme > 0 && scheme != std::string_view::npos &&
      std::ranges::all_of(text.substr(0, scheme), is_name_part)) {
    return "is an address, '" + std::string(text) +
           "', and nothing is fetched: name a local file or folder (mirror_dir takes a bucket)";
  }
  if (kind != PathKind::kPathOrBucket) return "";
  for (const std::string_view known : {"s3://", "gs://", "azure://", "rclone:"}) {
    if (text.starts_with(known)) return "";
  }
  const size_t end = text.find_first_of(":/");
  const bool is_named = end != std::string_view::npos && end > 0 && end + 1 < text.size();
  if (!is_named || text.starts_with('.') || text.starts_with('~')) return "";
  std::string scheme(text.substr(0, end));
  for (char& c : scheme) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  constexpr std::array kSchemes = {"s3",   "gs",   "gcs",  "az",    "azure", "azblob",
                                   "abfs", "wasb", "http", "https", "rclone"};
  const bool is_scheme = std::ranges::find(kSchemes, scheme) != kSchemes.end();
  const bool is_address = text.substr(end).starts_with("://");
  const bool lacks_colon = text.substr(end).starts_with("//");
  if (!is_address && !(is_scheme && (text[end] == ':' || lacks_colon))) return "";
  return "is no folder and no bucket that is known; write s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, "
         "azure://CONTAINER/FOLDER or rclone:REMOTE:FOLDER, not '" +
         std::string(text) + "'";
}

std::string resolve_path(const std::string& path, const std::string& folder, PathKind kind) {
  namespace fs = std::filesystem;
  const bool may_be_bucket = kind == PathKind::kPathOrBucket;
  if (may_be_bucket && (path.find("://") != std::string::npos || path.starts_with("rclone:"))) {
    const size_t scheme = path.find("://");
    const size_t least = scheme == std::string::npos ? 0 : scheme + 3;
    return path.substr(0, std::max(path.find_last_not_of('/') + 1, least));
  }
  const fs::path given(path);
  const fs::path whole = given.is_absolute() ? given : fs::path(folder) / given;
  if (kind == PathKind::kPathOrName) {
    const bool looks_like_path = given.is_absolute() || path == "." || path == ".." ||
                                 path.starts_with("./") || path.starts_with("../");
    std::error_code ignored;
    if (!looks_like_path && !fs::exists(whole, ignored)) return path;
  }
  std::string result = whole.lexically_normal().string();
  while (result.size() > 1 && result.back() == '/') result.pop_back();
  // "./~" is a file named "~"; it must not become the home folder when it is read again.
  return result.starts_with('~') ? "./" + result : result;
}

}  // namespace finetune
