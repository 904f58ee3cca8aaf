// SPDX-License-Identifier: MIT
#include "finetune/base/read_line.h"

#include <streambuf>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"

namespace finetune {

bool read_line(std::istream& stream, std::string& line, const std::string& where) {
  constexpr size_t kBytesBetweenPolls = size_t{1} << 20;
  line.clear();
  if (!stream.good()) return false;
  std::streambuf& buffer = *stream.rdbuf();
  for (size_t bytes = 1;; ++bytes) {
    const int c = buffer.sbumpc();
    if (c == std::char_traits<char>::eof()) {
      stream.setstate(line.empty() ? std::ios::eofbit | std::ios::failbit : std::ios::eofbit);
      return !line.empty();
    }
    if (c == '\n') return true;
    if (bytes % kBytesBetweenPolls == 0) interrupt::throw_if_requested("reading " + where);
    if (line.size() == kLongestTextLine) {
      throw Error(ErrorKind::kData, where +
                                        ": the line is longer than 16 MiB; split it into shorter "
                                        "lines, or check that this is text");
    }
    line.push_back(static_cast<char>(c));
  }
}

}  // namespace finetune
