// SPDX-License-Identifier: MIT
#include "finetune/data/retrieval_files.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// The text or number in a column.
std::string id_in(const DataRow& row, const char* column) {
  const auto found = row.columns.find(column);
  if (found != row.columns.end() && found->is_string()) return found->get<std::string>();
  if (found != row.columns.end() && found->is_number_integer()) return found->dump();
  throw Error(ErrorKind::kData,
              row.position + ": has no '" + column + "' with a text; BEIR's corpus.jsonl and " +
                  "queries.jsonl have _id and text, qrels query-id, corpus-id and score");
}

double score_in(const DataRow& row) {
  const auto found = row.columns.find("score");
  if (found != row.columns.end() && found->is_number()) return found->get<double>();
  const std::string text = id_in(row, "score");
  size_t used = 0;
  double score = 0;
  try {
    score = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size()) {
    throw Error(ErrorKind::kData, row.position + ": score '" + text + "' is not a number");
  }
  return score;
}

}  // namespace

std::optional<RetrievalFiles> retrieval_files(const std::vector<std::string>& patterns,
                                              const std::string& key) {
  for (const std::string& pattern : patterns) {
    if (FileSystem::local().type(pattern) != FileType::kDirectory) continue;
    const std::vector<std::string> files = expand_files({pattern}, key);
    if (files.size() != 3 || file_name(parent_path(files[2])) != "qrels") continue;
    if (patterns.size() > 1) {
      throw Error(ErrorKind::kConfig, key + ": the folder '" + pattern +
                                          "' has queries and their documents (BEIR), which are " +
                                          "evaluated alone; name one folder");
    }
    return RetrievalFiles{.corpus = files[0], .queries = files[1], .judgements = files[2]};
  }
  return std::nullopt;
}

RetrievalTask read_retrieval_task(const RetrievalFiles& files, const RowOptions& options,
                                  std::optional<int64_t> most) {
  std::unordered_map<std::string, std::vector<std::string>> judged;  // query, its documents
  visit_rows({files.judgements}, options, [&](const DataRow& row) {
    if (score_in(row) > 0) judged[id_in(row, "query-id")].push_back(id_in(row, "corpus-id"));
    return true;
  });
  RetrievalTask task;
  std::unordered_map<std::string, std::vector<size_t>> queries_of;  // document, its queries
  visit_rows({files.queries}, options, [&](const DataRow& row) {
    const auto found = judged.find(id_in(row, "_id"));
    if (found == judged.end()) return true;
    std::vector<std::string>& documents = found->second;
    std::ranges::sort(documents);
    documents.erase(std::unique(documents.begin(), documents.end()), documents.end());
    for (const std::string& document : documents) {
      queries_of[document].push_back(task.relevant.size());
    }
    task.queries += Json{{"text", row.columns.value("text", Json())}}.dump() + "\n";
    task.relevant.emplace_back();
    task.relevant_count.push_back(std::ssize(documents));
    judged.erase(found);
    return !most || std::ssize(task.relevant) < *most;
  });
  if (task.relevant.empty()) {
    throw Error(ErrorKind::kData, files.judgements + ": judges no query of " + files.queries +
                                      " with a score above " + "0; are both of one data set?");
  }
  int64_t number = 0;
  std::vector<uint64_t> seen;  // hashes of ids
  visit_rows({files.corpus}, options, [&](const DataRow& row) {
    const std::string id = id_in(row, "_id");
    seen.push_back(std::hash<std::string>()(id));
    const auto found = queries_of.find(id);
    if (found != queries_of.end()) {
      for (const size_t query : found->second) task.relevant[query].push_back(number);
      queries_of.erase(found);
    }
    ++number;
    return true;
  });
  std::ranges::sort(seen);
  if (std::ranges::adjacent_find(seen) != seen.end()) {
    throw Error(ErrorKind::kData, files.corpus + ": has an _id twice, so that it is not clear " +
                                      "which document is judged; remove one");
  }
  task.absent = std::ssize(queries_of);
  return task;
}

}  // namespace finetune
