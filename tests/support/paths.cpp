// SPDX-License-Identifier: MIT
#include "support/paths.h"

namespace finetune {

std::string source_dir() { return FINETUNE_SOURCE_DIR; }
std::string binary_path() { return FINETUNE_BINARY; }
std::string session_server_path() { return FINETUNE_SESSION_SERVER; }

}  // namespace finetune
