// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"

#include "finetune/base/text.h"

namespace finetune {

int Error::exit_code() const {
  switch (kind_) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
      return kExitUsage;
    case ErrorKind::kCheckpoint:
      return kExitNoValidCheckpoint;
    case ErrorKind::kBusy:
      return kExitBusy;
    case ErrorKind::kData:
    case ErrorKind::kDevice:
    case ErrorKind::kIo:
      return kExitFailed;
  }
  return kExitFailed;
}

namespace internal {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw std::logic_error(format_text("{}:{}: {} (violated: {})", file, line, message, condition));
}

}  // namespace internal
}  // namespace finetune
