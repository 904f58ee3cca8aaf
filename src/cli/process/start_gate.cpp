// SPDX-License-Identifier: MIT
#include "cli/process/start_gate.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "finetune/base/error.h"

namespace finetune::cli {

StartGate::StartGate() {
  if (::pipe2(ends_.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorKind::kIo,
                std::string("no pipe to start processes with: ") + std::strerror(errno));
  }
}

StartGate::~StartGate() {
  close(0);
  close(1);
}

void StartGate::open(size_t count) {
  const std::string bytes(count, 'x');
  if (::write(ends_[1], bytes.data(), count) != static_cast<ssize_t>(count)) {
    throw Error(ErrorKind::kIo, std::string("cannot start processes: ") + std::strerror(errno));
  }
}

bool StartGate::pass() {
  close(1);
  char byte = 0;
  ssize_t size = -1;
  do {
    size = ::read(ends_[0], &byte, 1);
  } while (size < 0 && errno == EINTR);
  close(0);
  return size == 1;
}

void StartGate::close(size_t end) {
  if (ends_[end] >= 0) ::close(ends_[end]);
  ends_[end] = -1;
}

}  // namespace finetune::cli
