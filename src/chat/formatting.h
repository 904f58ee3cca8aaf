// SPDX-License-Identifier: MIT
#pragma once

#include "chat/arguments.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

// str.format(), with the rules of jinja2's sandbox: a field reaches members of values, never
// Python's attributes. Throws Error(kData) for a format that Python refuses or that is not
// available.
[[nodiscard]] TracedText formatted(const TracedText& format, const Arguments& arguments);

// Python's "format % values".
[[nodiscard]] TracedText percent_formatted(const TracedText& format, const Value& values);

}  // namespace finetune::chat
