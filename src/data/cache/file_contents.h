// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// Returns the ending that determines how a file is read, without and with that of its compression.
[[nodiscard]] std::string ending_of(const std::string& path);

// Stores hashes of files that were computed anyway, one per path, for known_contents() of
// file_record.h.
void note_contents(const TokenCacheOptions& cache, const std::vector<std::string>& paths,
                   const std::vector<std::string>& hashes);

}  // namespace finetune
