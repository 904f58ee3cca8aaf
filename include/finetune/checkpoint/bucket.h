// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"

// Places in object stores, which the program rclone reaches: "s3://bucket/runs/a", "gs://...",
// "azure://..." with the environment's credentials, and "rclone:REMOTE:PATH" with those of rclone's
// configuration.
namespace finetune::checkpoint {

[[nodiscard]] bool is_bucket(std::string_view location);

// Returns why `location`, which is_bucket(), cannot be one, as a clause with what to do; empty: it
// can.
[[nodiscard]] std::string problem_of_bucket(std::string_view location);

// A bucket as a file system (an object store) for paths that begin with `location`. rclone is
// started at the first call and ends with the object, or with the thread that made the call. Every
// member throws Error(kIo) with rclone's reason; system_error() is ENOENT, EACCES or EDQUOT where
// that is known. Throws Error(kConfig) if there is no rclone, an old one, or a problem_of_bucket().
[[nodiscard]] std::shared_ptr<FileSystem> bucket_files(const std::string& location);

// The file system of a location: the bucket's, or the local one.
[[nodiscard]] std::shared_ptr<FileSystem> files_of_location(const std::string& location);

}  // namespace finetune::checkpoint
