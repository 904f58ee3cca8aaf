// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// The checkout and the binary of the tests. These are functions so that no other object file
// contains a path, which lets all checkouts share a compiler cache.
[[nodiscard]] std::string source_dir();
[[nodiscard]] std::string binary_path();
[[nodiscard]] std::string session_server_path();  // empty where there is none

}  // namespace finetune
