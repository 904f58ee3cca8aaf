// SPDX-License-Identifier: MIT
#include "data/readers/path_pattern.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

using Parts = std::span<const std::string>;

// Code points; a byte that is no UTF-8 counts as one.
std::u32string characters_of(const std::string& text) {
  std::u32string characters;
  const size_t valid = std::min(utf8::find_invalid(text), text.size());
  for (size_t at = 0; at < valid;) characters.push_back(utf8::decode(text, at));
  for (size_t at = valid; at < text.size(); ++at) {
    characters.push_back(0xDC00 + static_cast<unsigned char>(text[at]));
  }
  return characters;
}

// One character of a pattern, as Python's fnmatch reads it: '!' alone negates, and a '[' that is
// not closed is a character. Moves `at` to the next.
bool matches_character(const std::u32string& pattern, size_t& at, char32_t c) {
  const char32_t first = pattern[at++];
  if (first == U'?') return true;
  if (first != U'[') return first == c;
  size_t begin = at;
  const bool negates = begin < pattern.size() && pattern[begin] == U'!';
  if (negates) ++begin;
  const size_t end = pattern.find(U']', begin + 1);  // a ']' that comes first is in the set
  if (begin >= pattern.size() || end == std::u32string::npos) return c == U'[';
  bool is_in = false;
  for (size_t i = begin; i < end; ++i) {
    if (i + 2 < end && pattern[i + 1] == U'-') {
      is_in = is_in || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      is_in = is_in || pattern[i] == c;
    }
  }
  at = end + 1;
  return is_in != negates;
}

// Whether items match a pattern of items, of which "many" stands for any number: when the rest of
// the pattern fails, only the last "many" takes one more, so that the work is at most the product
// of both sizes. `step(p, s)`: whether pattern item p matches item s; moves p to the next item.
template <class IsMany, class Step>
bool matches_sequence(size_t pattern_size, size_t size, const IsMany& is_many, const Step& step) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t p = 0;
  size_t s = 0;
  size_t after_many = kNone;
  size_t taken = 0;
  while (s < size) {
    if (p < pattern_size && is_many(p)) {
      after_many = ++p;
      taken = s;
      continue;
    }
    if (size_t next = p; p < pattern_size && step(next, s)) {
      p = next;
      ++s;
      continue;
    }
    if (after_many == kNone) return false;
    p = after_many;
    s = ++taken;
  }
  while (p < pattern_size && is_many(p)) ++p;
  return p == pattern_size;
}

bool matches_name(const std::string& pattern, const std::string& name) {
  if (name.starts_with('.') && !pattern.starts_with('.')) return false;
  const std::u32string wanted = characters_of(pattern);
  const std::u32string given = characters_of(name);
  return matches_sequence(
      wanted.size(), given.size(), [&](size_t p) { return wanted[p] == U'*'; },
      [&](size_t& p, size_t s) { return matches_character(wanted, p, given[s]); });
}

// Requires: no "**" after another.
bool matches_parts(Parts pattern, Parts path) {
  if (!pattern.empty() && pattern.back() == "**") {  // at the end it takes at least one part
    for (size_t kept = 0; kept < path.size(); ++kept) {
      if (pattern.size() == 1 || matches_parts(pattern.first(pattern.size() - 1), path.first(kept)))
        return true;
    }
    return false;
  }
  return matches_sequence(
      pattern.size(), path.size(), [&](size_t p) { return pattern[p] == "**"; },
      [&](size_t& p, size_t s) { return matches_name(pattern[p++], path[s]); });
}

// "**" after "**" adds nothing but time.
std::vector<std::string> pattern_parts(std::string_view pattern) {
  std::vector<std::string> parts = path_parts(pattern);
  const auto repeated = std::unique(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a == "**" && b == "**";
  });
  parts.erase(repeated, parts.end());
  return parts;
}

// Names in a folder, or none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  interrupt::throw_if_requested("looking for files");
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entries(folder.empty() ? "." : folder, problem);
  if (problem) return names;
  for (const auto& entry : entries) names.push_back(entry.path().filename().string());
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Visits folders and files. A link to a folder that is being visited already is not followed.
class Walk {
 public:
  void files_below(const std::string& folder, const std::string& before,
                   std::vector<std::string>& found) {
    const bool is_new = enter(folder);
    if (!is_new) return;
    for (const std::string& name : names_in(folder)) {
      if (name.starts_with('.')) continue;
      const std::string path = join_path(folder, name);
      const std::string relative = before.empty() ? name : before + "/" + name;
      if (!is_folder(path)) {
        found.push_back(relative);
      } else if (!name.starts_with("__")) {
        files_below(path, relative, found);
      }
    }
    leave();
  }

  void glob(const std::string& base, Parts pattern, std::vector<std::string>& found) {
    const std::string& part = pattern.front();
    const Parts rest = pattern.subspan(1);
    const auto join = [&](const std::string& name) {
      return base.empty() ? name : base == "/" ? base + name : base + "/" + name;
    };
    if (part == "**") {
      if (!enter(base)) return;
      if (!rest.empty()) glob(base, rest, found);
      for (const std::string& name : names_in(base)) {
        if (name.starts_with('.')) continue;
        if (is_folder(join(name))) {
          glob(join(name), pattern, found);
        } else if (rest.empty()) {
          found.push_back(join(name));
        }
      }
      return leave();
    }
    const std::vector<std::string> names =
        is_pattern(part) ? names_in(base) : std::vector<std::string>{part};
    for (const std::string& name : names) {
      if (is_pattern(part) && !matches_name(part, name)) continue;
      std::error_code ignored;
      if (!rest.empty() && is_folder(join(name))) {
        glob(join(name), rest, found);
      } else if (rest.empty() && fs::exists(join(name), ignored) && !is_folder(join(name))) {
        found.push_back(join(name));
      }
    }
  }

 private:
  bool enter(const std::string& folder) {
    std::error_code ignored;
    const std::string real = fs::canonical(folder.empty() ? "." : folder, ignored).string();
    if (std::ranges::find(inside_, real) != inside_.end()) return false;
    inside_.push_back(real);
    return true;
  }
  void leave() { inside_.pop_back(); }

  std::vector<std::string> inside_;
};

}  // namespace

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool matches_pattern(std::string_view path, std::string_view pattern) {
  return matches_parts(pattern_parts(pattern), path_parts(path));
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  Walk().files_below(folder, "", found);
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> glob_files(const std::string& pattern) {
  const std::vector<std::string> parts = pattern_parts(pattern);
  std::vector<std::string> found;
  if (!parts.empty()) Walk().glob(pattern.starts_with('/') ? "/" : "", parts, found);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace finetune
