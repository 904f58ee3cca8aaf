// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

namespace finetune::cli {

// Thrown if the reader of standard output has closed the pipe ("finetune ... | head"): there is
// nothing left to do. Ends a command quietly, with exit code 0.
class ReaderLeft : public std::exception {};

// Flushes std::cout. Returns false if the reader has closed the pipe; throws Error(kIo) if writing
// failed for another reason, such as a full disk.
[[nodiscard]] bool flush_standard_output();

}  // namespace finetune::cli
