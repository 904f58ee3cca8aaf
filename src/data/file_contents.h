// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// What decides how a file is read: its ending, without and with the one of its packing.
[[nodiscard]] std::string ending_of(const std::string& path);

// Tells known_contents() of file_record.h the hashes of files that were read anyway, one for each
// path.
void note_contents(const TokenCacheOptions& cache, const std::vector<std::string>& paths,
                   const std::vector<std::string>& hashes);

}  // namespace finetune
