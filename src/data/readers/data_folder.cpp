// SPDX-License-Identifier: MIT
#include "data/readers/data_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "data/readers/data_card.h"
#include "data/readers/path_pattern.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/data/data_files.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

// The splits and words in names that load_dataset() knows, in its order.
struct Split {
  const char* name;
  const char* key;
  std::array<const char*, 4> words;
};
constexpr std::array<Split, 3> kSplits = {
    {{"train", "train_file", {"train", "training"}},
     {"validation", "validation_file", {"validation", "valid", "dev", "val"}},
     {"test", "test_file", {"test", "testing", "eval", "evaluation"}}}};
constexpr std::string_view kSeparators = "[-._ 0-9]";  // NON_WORDS_CHARS

// Files of a data set that are not its data: its description, and what `datasets` and this program
// write next to it.
constexpr std::array<std::string_view, 8> kDescriptions = {
    "readme", "license", "licence", "notice", "citation", "copying", "changelog", "authors"};
constexpr std::array<std::string_view, 7> kNoData = {
    "config.json",       "dataset_info.json", "dataset_infos.json", "dummy_data.zip",
    "dataset_dict.json", "state.json",        kShardManifest};

bool is_never_data(const std::string& path) {
  const std::string name = file_name(path);
  if (name.starts_with('.') || std::ranges::find(kNoData, name) != kNoData.end()) return true;
  if (name.starts_with("cache-") && name.ends_with(".arrow")) return true;
  const std::string lower = lower_case(name);
  const std::string ending = fs::path(lower).extension().string();
  const std::string stem = lower.substr(0, lower.find('.'));
  static constexpr std::array<std::string_view, 7> kEndings = {"",     ".md",  ".txt", ".rst",
                                                               ".cff", ".bib", ".html"};
  return std::ranges::find(kDescriptions, stem) != kDescriptions.end() &&
         std::ranges::find(kEndings, ending) != kEndings.end();
}

// What a person calls the kind of a file; files of one kind can be mixed.
const char* kind_name(const std::string& path) {
  switch (kind_by_ending(path).value_or(FileKind::kText)) {
    case FileKind::kText:
      return "text";
    case FileKind::kJsonLines:
    case FileKind::kJson:
      return "JSON";
    case FileKind::kCsv:
    case FileKind::kTsv:
      return "CSV";
    case FileKind::kConll:
      return "CoNLL";
    case FileKind::kParquet:
      return "Parquet";
    case FileKind::kArrow:
      return "Arrow";
    case FileKind::kTfRecord:
      return "TFRecord";
  }
  FT_CHECK(false, "unknown FileKind");
}

std::string quoted(const std::string& text) { return "'" + printable_line(text) + "'"; }

std::string quoted_list(const Names& names) {
  Names result;
  for (const std::string& name : names) result.push_back(quoted(name));
  return listed(result, 4);
}

[[noreturn]] void fail(const std::string& key, const std::string& what) {
  throw Error(ErrorKind::kConfig, key + ": " + what);
}

// `where`: "the folder 'x' holds".
void check_one_kind(const Names& files, const std::string& key, const std::string& where,
                    const std::string& example) {
  std::map<std::string, std::string> kinds;
  for (const std::string& file : files) kinds.try_emplace(kind_name(file), file);
  if (kinds.size() < 2) return;
  Names shown;
  for (const auto& [kind, file] : kinds) shown.push_back(kind + " (" + quoted(file) + ")");
  const std::string ending = fs::path(kinds.begin()->second).extension().string();
  fail(key, where + " files of different kinds: " + join(shown) +
                "; name the files that are data, for example '" + example + ending + "'");
}

// What a folder holds, by names relative to it.
struct Tree {
  Names data;   // by a known ending
  Names other;  // everything else
};

Tree tree_of(const std::string& folder) {
  Tree tree;
  for (std::string& path : files_below(folder)) {
    (kind_by_ending(path) && !is_never_data(path) ? tree.data : tree.other)
        .push_back(std::move(path));
  }
  return tree;
}

struct Splits {
  std::string how;  // what named them: "README.md", "the names of its files"; empty: nothing did
  std::vector<std::pair<std::string, Names>> splits = {};
  std::map<std::string, Names> absent =
      {};  // by split: named patterns that no file of data matches
};

// Returns the files that match a pattern of a list, pattern by pattern as `datasets` orders them.
Names matching(const Names& files, const Names& patterns) {
  Names found;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    for (const std::string& file : files) {
      if (matches_pattern(file, pattern) && seen.insert(file).second) found.push_back(file);
    }
  }
  return found;
}

// "data/train-00000-of-00001.parquet": what push_to_hub() writes.
Splits sharded_splits(const Names& files) {
  const std::string digits = "[0-9][0-9][0-9][0-9][0-9]";
  const std::string shard = "-" + digits + "-of-" + digits;
  Splits result{.how = "the names of its shards"};
  std::map<std::string, Names> splits;
  for (const std::string& file : files) {
    if (!matches_pattern(file, "data/*" + shard + "*.*")) continue;
    const std::string name = file_name(file);
    for (size_t at = name.find('-'); at != std::string::npos; at = name.find('-', at + 1)) {
      if (!matches_pattern(name.substr(at), shard + "*.*")) continue;
      splits[name.substr(0, at)].push_back(file);
      break;
    }
  }
  for (const Split& split : kSplits) {
    if (auto known = splits.extract(split.name)) {
      result.splits.emplace_back(known.key(), std::move(known.mapped()));
    }
  }
  for (auto& [name, shards] : splits) result.splits.emplace_back(name, std::move(shards));
  return result;
}

// Patterns of load_dataset() for a word in the names of folders or files.
Names word_patterns(const Split& split, bool in_folders) {
  const std::string separator(kSeparators);
  Names patterns;
  for (const char* word : split.words) {
    if (word == nullptr) continue;
    const std::string name = word;
    if (in_folders) {
      patterns.insert(patterns.end(), {"**/" + name + "/**", "**/" + name + separator + "*/**",
                                       "**/*" + separator + name + "/**",
                                       "**/*" + separator + name + separator + "*/**"});
    } else {
      patterns.insert(patterns.end(), {"**/" + name + separator + "*",
                                       "**/*" + separator + name + separator + "*"});
    }
  }
  return patterns;
}

Splits named_splits(const Names& files, bool in_folders) {
  Splits result{.how = in_folders ? "the names of its folders" : "the names of its files"};
  for (const Split& split : kSplits) {
    Names found = matching(files, word_patterns(split, in_folders));
    if (!found.empty()) result.splits.emplace_back(split.name, std::move(found));
  }
  return result;
}

Splits splits_by_names(const Names& files) {
  for (const auto& find : {std::function(sharded_splits),
                           std::function([](const Names& x) { return named_splits(x, true); }),
                           std::function([](const Names& x) { return named_splits(x, false); })}) {
    Splits found = find(files);
    if (!found.splits.empty()) return found;
  }
  return {.how = "", .splits = {{"train", files}}};
}

// Reads a file that save_to_disk() wrote; nullopt if it is not there.
std::optional<Json> read_state(const std::string& folder, const char* name) {
  const std::string path = join_path(folder, name);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  return read_json_file(path);
}

// The shards of a Dataset that save_to_disk() wrote, in their order; nullopt if it is none.
std::optional<Names> saved_shards(const std::string& folder) {
  const auto state = read_state(folder, "state.json");
  if (!state || !state->is_object() || !state->contains("_data_files")) return std::nullopt;
  Names names;
  for (const Json& file : (*state)["_data_files"]) {
    if (!file.is_object() || !file.value("filename", Json()).is_string()) return std::nullopt;
    names.push_back(file["filename"].get<std::string>());
  }
  return names;
}

// A Dataset or DatasetDict that save_to_disk() wrote.
std::optional<Splits> saved_splits(const std::string& folder) {
  if (auto shards = saved_shards(folder)) {
    return Splits{.how = "", .splits = {{"train", std::move(*shards)}}};
  }
  const auto dict = read_state(folder, "dataset_dict.json");
  if (!dict || !dict->is_object() || !dict->value("splits", Json()).is_array()) return std::nullopt;
  Splits result{.how = "dataset_dict.json"};
  for (const Json& name : (*dict)["splits"]) {
    if (!name.is_string()) return std::nullopt;
    const std::string split = name.get<std::string>();
    auto shards = saved_shards(join_path(folder, split));
    if (!shards) return std::nullopt;
    for (std::string& shard : *shards) shard = split + "/" + shard;
    result.splits.emplace_back(split, std::move(*shards));
  }
  return result;
}

// The splits of a data card; nullopt if it names none. As load_dataset() does, a pattern takes no
// file that is never data, unless it names it.
std::optional<Splits> card_splits(const std::string& folder, const Tree& tree,
                                  const std::string& key) {
  const auto card = read_data_card(folder, key);
  if (!card) return std::nullopt;
  std::string inside;  // the data_dir with its slash
  for (const std::string& part : path_parts(card->data_dir)) {
    if (part != ".") inside += part + "/";
  }
  const auto inside_of = [&](const Names& paths) {
    Names files;
    for (const std::string& path : paths) {
      if (path.starts_with(inside)) files.push_back(path.substr(inside.size()));
    }
    return files;
  };
  const Names files = inside_of(tree.data);
  const Names other = inside_of(tree.other);
  Splits result;
  if (card->splits.empty()) result = splits_by_names(files);
  for (const auto& [split, patterns] : card->splits) {
    Names found;
    std::set<std::string> seen;
    for (const std::string& pattern : patterns) {
      Names parts = path_parts(pattern);
      std::erase(parts, ".");
      const std::string plain = join(parts, "/");
      Names matches = matching(files, {plain});
      if (matches.empty() && std::ranges::find(other, plain) != other.end() &&
          kind_by_ending(plain)) {
        matches.push_back(plain);
      }
      if (matches.empty()) result.absent[split].push_back(pattern);
      for (std::string& file : matches) {
        if (seen.insert(file).second) found.push_back(std::move(file));
      }
    }
    result.splits.emplace_back(split, std::move(found));
  }
  for (auto& [split, names] : result.splits) {
    for (std::string& name : names) name = inside + name;
  }
  result.how = card->source;
  return result;
}

// Queries, documents and judgements of which answers which (retrieval_files.h). Their folder is no
// set of rows: its files are corpus, queries and the judgements of the key's split.
std::optional<Names> judged_files(const std::string& folder, const Tree& tree,
                                  const std::string& key) {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(tree.data, name) != tree.data.end();
  };
  Names judgements;
  for (const std::string& file : tree.data) {
    if (matches_pattern(file, "qrels/*.tsv")) judgements.push_back(file);
  }
  Names absent;
  for (const char* name : {"corpus.jsonl", "queries.jsonl"}) {
    if (!has(name)) absent.emplace_back(name);
  }
  if (judgements.empty()) absent.emplace_back("qrels/*.tsv");
  if (absent.size() > 1) return std::nullopt;
  if (!absent.empty()) {
    fail(key, "the folder '" + folder + "' has queries, documents or judgements (BEIR) without " +
                  absent.front() + "; fetch it again, or name the files that are data");
  }
  if (key != "validation_file" && key != "test_file") {
    fail(key, "the folder '" + folder +
                  "' has queries, documents and judgements (BEIR), which are for validation_file; "
                  "name the file that has the texts, for example '" +
                  join_path(folder, "corpus.jsonl") + "'");
  }
  Names wanted = {"dev", "validation", "valid", "val", "test"};
  if (key == "test_file") std::ranges::reverse(wanted);
  for (const std::string& word : wanted) {
    const std::string name = "qrels/" + word + ".tsv";
    if (has(name)) return Names{"corpus.jsonl", "queries.jsonl", name};
  }
  if (judgements.size() == 1) return Names{"corpus.jsonl", "queries.jsonl", judgements.front()};
  fail(key, "the folder '" + folder + "' has " + quoted_list(judgements) +
                ", and none for this key; keep the one that is meant");
}

// Chooses the split of a key. One alone is taken, unless it is the training data's where others are
// asked for.
const std::pair<std::string, Names>& choose(const Splits& found, const std::string& folder,
                                            const std::string& key) {
  const auto wanted =
      std::ranges::find_if(kSplits, [&](const Split& split) { return key == split.key; });
  if (found.splits.size() == 1 && found.how.empty()) return found.splits.front();
  Names names;
  for (const auto& [name, files] : found.splits) names.push_back(name);
  if (wanted != kSplits.end()) {
    for (const char* word : wanted->words) {
      const auto split = std::ranges::find_if(
          found.splits, [&](const auto& one) { return word != nullptr && one.first == word; });
      if (split != found.splits.end()) return *split;
    }
  }
  const bool is_train = wanted == kSplits.begin() || wanted == kSplits.end();
  if (names.size() == 1 && (is_train || names.front() != "train")) return found.splits.front();
  fail(key, "the folder '" + folder + "' has the " + (names.size() == 1 ? "split " : "splits ") +
                quoted_list(names) + " by " + found.how + ", and none for " + key +
                "; name its files, for example " +
                quoted(join_path(folder, found.splits.front().second.empty()
                                             ? "*"
                                             : found.splits.front().second.front())));
}

// "12 files, 'a' to 'b'".
std::string summary(const Names& names) {
  if (names.size() <= 2) return quoted_list(names);
  return format_text("{} files, {} to {}", names.size(), quoted(names.front()),
                     quoted(names.back()));
}

[[noreturn]] void fail_without_data(const std::string& folder, const std::string& key,
                                    const Tree& tree) {
  const std::string held =
      tree.other.empty() ? "no file"
                         : "no file of data by a known ending (.jsonl, .json, .csv, .tsv, .txt, "
                           ".parquet, .arrow, .conll, .tfrecord), only " +
                               quoted_list(tree.other);
  fail(key, "the folder '" + folder + "' holds " + held + "; name its files, for example '" +
                join_path(folder, "*") + "'");
}

}  // namespace

FoundFiles find_in_folder(const std::string& folder, const std::string& key) {
  const Tree tree = tree_of(folder);
  if (const auto judged = judged_files(folder, tree, key)) {
    FoundFiles result;
    result.report = key + ": the folder " + quoted(folder) + " gives " + quoted_list(*judged);
    for (const std::string& file : *judged) result.files.push_back(join_path(folder, file));
    return result;
  }
  auto found = saved_splits(folder);
  if (!found) found = card_splits(folder, tree, key);
  if (!found) {
    if (tree.data.empty()) fail_without_data(folder, key, tree);
    found = splits_by_names(tree.data);
  }
  const auto& [name, files] = choose(*found, folder, key);
  if (const auto absent = found->absent.find(name); absent != found->absent.end()) {
    fail(key, "the folder '" + folder + "' has no file of data for " + quoted_list(absent->second) +
                  ", which " + found->how + " names for the split '" + name +
                  "'; fetch the folder again, or name the files that are data");
  }
  if (files.empty()) {
    fail(key, "the folder '" + folder + "' holds no file of the split '" + name + "' that " +
                  found->how + " names; fetch the folder again, or name its files");
  }
  check_one_kind(files, key, "the folder '" + folder + "' holds", join_path(folder, "*"));
  FoundFiles result;
  for (const std::string& file : files) result.files.push_back(join_path(folder, file));
  const std::set<std::string> taken(files.begin(), files.end());
  Names left;
  for (const Names* names : {&tree.data, &tree.other}) {
    for (const std::string& file : *names) {
      if (!taken.contains(file)) left.push_back(file);
    }
  }
  const std::string split =
      found->how.empty() ? "" : " (split '" + name + "' by " + found->how + ")";
  result.report = key + ": the folder " + quoted(folder) + " gives " + summary(files) + split +
                  (left.empty() ? "" : "; left out: " + quoted_list(left));
  return result;
}

FoundFiles find_matches(const std::string& pattern, const std::string& key) {
  for (const std::string& part : path_parts(pattern)) {
    if (part != "**" && part.find("**") != std::string::npos) {
      fail(key, "'" + pattern +
                    "': '**' stands for any number of folders and must be a whole part of the "
                    "path, as in 'data/**/*.jsonl'");
    }
  }
  FoundFiles result;
  Names left;
  const bool names_one = !is_pattern(file_name(pattern));
  for (std::string& path : glob_files(pattern)) {
    (names_one || !is_never_data(path) ? result.files : left).push_back(std::move(path));
  }
  if (result.files.empty()) {
    fail(key, left.empty() ? "no file matches '" + pattern + "'; check the pattern"
                           : "'" + pattern + "' matches only " + quoted_list(left) +
                                 ", which is no data; check the pattern");
  }
  check_one_kind(result.files, key, "'" + pattern + "' matches", pattern);
  if (!left.empty()) {
    result.report = key + ": " + quoted(pattern) + " gives " + summary(result.files) +
                    "; left out: " + quoted_list(left);
  }
  return result;
}

}  // namespace finetune
