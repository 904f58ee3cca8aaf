// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune::cli {

// Returns the folder of a run's model: of a run in a bucket (checkpoint/bucket.h), a copy below
// cache_dir of the finished model, or else of the newest valid checkpoint, verified; any other
// `location` is returned as it is. Throws Error(kData) if the bucket holds neither, Error(kIo).
[[nodiscard]] std::string local_model(const std::string& location);

}  // namespace finetune::cli
