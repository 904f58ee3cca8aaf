// SPDX-License-Identifier: MIT
#include "data/cache/file_findings.h"
#include "data/readers/file_format.h"
#include "finetune/base/error.h"
#include "finetune/data/data_files.h"
#include "finetune/data/token_cache.h"

namespace finetune {

int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                   const TokenCacheOptions& cache, const std::function<void(double)>& progress,
                   const ReadingOptions& reading) {
  constexpr int64_t kMostRows = int64_t{1} << 49;
  const std::vector<std::string> names = expand_files(patterns, key);
  int64_t rows = 0;
  FileQuestion question{.kind = "rows", .files = names, .options = {}};
  add_reading(question.options, reading);
  answer_from_files(
      cache, question,
      [&] { return nlohmann::ordered_json(count_rows(names, key, progress, reading)); },
      [&](const nlohmann::ordered_json& found) {
        rows = found.get<int64_t>();
        if (rows < 0 || rows > kMostRows) throw Error(ErrorKind::kData, "no number of rows");
      });
  return rows;
}

}  // namespace finetune
