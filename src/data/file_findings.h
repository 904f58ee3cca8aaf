// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// What a pass over files is asked.
struct FileQuestion {
  std::string kind;                // one of kFindings: a folder below the cache's
  std::vector<std::string> files;  // paths
  nlohmann::ordered_json options;  // everything else that the answer depends on
};

// What `find` says, or what it said the last time about the same files. It is kept beside the
// tokenised caches with the files' identities and asked again where one of them has changed in any
// way, moved ones included, or where the program is another. `accept` takes the answer and throws
// Error or a JSON exception where it can be none: then it is asked again too. Throws what `find`
// throws.
void answer_from_files(const TokenCacheOptions& cache, const FileQuestion& question,
                       const std::function<nlohmann::ordered_json()>& find,
                       const std::function<void(const nlohmann::ordered_json&)>& accept);

}  // namespace finetune
