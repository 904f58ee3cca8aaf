// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// A question that is answered by reading files.
struct FileQuestion {
  std::string kind;                // one of kFindings: a folder below the cache's
  std::vector<std::string> files;  // paths
  nlohmann::ordered_json options;  // all other inputs of the answer
};

// Passes `accept` the result of `find`, or its stored result for the same files. Results are stored
// next to the token caches with the files' identities. `find` is called again if a file changed in
// any way (including moved files), if the program's version differs, or if `accept` throws Error or
// a JSON exception for the stored result. Throws what `find` throws.
void answer_from_files(const TokenCacheOptions& cache, const FileQuestion& question,
                       const std::function<nlohmann::ordered_json()>& find,
                       const std::function<void(const nlohmann::ordered_json&)>& accept);

}  // namespace finetune
