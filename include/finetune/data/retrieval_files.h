// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/rows.h"

namespace finetune {

// A set of queries, documents, and judgements of which document answers which query, in the files
// of BEIR (Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of
// Information Retrieval Models"): corpus.jsonl with _id, title and text, queries.jsonl with _id and
// text, and qrels/SPLIT.tsv with query-id, corpus-id and score.
struct RetrievalFiles {
  std::string corpus, queries, judgements;
};

// Returns the files if the patterns name a folder of that form alone; nullopt for any other. `key`:
// the configuration key that names it. Throws as expand_files().
[[nodiscard]] std::optional<RetrievalFiles> retrieval_files(
    const std::vector<std::string>& patterns, const std::string& key);

// Which documents answer the queries that are asked.
struct RetrievalTask {
  std::string queries;                         // the rows of the queries, as JSON lines
  std::vector<std::vector<int64_t>> relevant;  // by query: rows of the corpus
  // By query: the judged documents that answer it, also those that the corpus lacks.
  std::vector<int64_t> relevant_count;
  int64_t absent = 0;  // judged documents that the corpus lacks
};

// Reads the judgements with a positive score, and the queries that have one: the first `most` of
// them. Memory is bounded by these. Throws Error(kData) for unreadable rows and where no query is
// left, and Interrupted.
[[nodiscard]] RetrievalTask read_retrieval_task(const RetrievalFiles& files,
                                                const RowOptions& options,
                                                std::optional<int64_t> most);

}  // namespace finetune
