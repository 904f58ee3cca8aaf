// SPDX-License-Identifier: MIT
#include "data/file_findings.h"
#include "finetune/base/error.h"
#include "finetune/data/data_files.h"
#include "finetune/data/token_cache.h"

namespace finetune {

int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                   const TokenCacheOptions& cache, const std::function<void(double)>& progress) {
  constexpr int64_t kMostRows = int64_t{1} << 49;
  const std::vector<std::string> names = expand_files(patterns, key);
  int64_t rows = 0;
  answer_from_files(
      cache, {.kind = "rows", .files = names, .options = {}},
      [&] { return nlohmann::ordered_json(count_rows(names, key, progress)); },
      [&](const nlohmann::ordered_json& found) {
        rows = found.get<int64_t>();
        if (rows < 0 || rows > kMostRows) throw Error(ErrorKind::kData, "no number of rows");
      });
  return rows;
}

}  // namespace finetune
