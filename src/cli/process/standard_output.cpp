// SPDX-License-Identifier: MIT
#include "cli/process/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <iostream>

#include "finetune/base/error.h"

namespace finetune::cli {

bool flush_standard_output() {
  std::cout.flush();
  if (std::cout) return true;
  // A stream does not keep the reason for a failure; poll() detects a pipe without a reader.
  pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) return false;
  throw Error(ErrorKind::kIo, "standard output cannot be written");
}

}  // namespace finetune::cli
