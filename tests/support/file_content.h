// SPDX-License-Identifier: MIT
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace finetune::testing {

// The bytes of a file; none if it cannot be read. By blocks: tests are compiled without
// optimization.
inline std::string file_content(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace finetune::testing
