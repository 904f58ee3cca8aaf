// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "chat/characters.h"
#include "chat/render_limits.h"
#include "finetune/chat/value.h"

// Methods of str that filters share.
namespace finetune::chat {

// `chars`: undefined or None: white space.
[[nodiscard]] TracedText strip(const TracedText& text, Ends ends, const Value& chars);
// `only_text`: refuse other items, as str.join() does; false: convert them, as the filter does.
[[nodiscard]] TracedText join_items(const std::vector<Value>& items, const TracedText& separator,
                                    Limits& limits, bool only_text);
// str.replace(old, new, count).
[[nodiscard]] TracedText replace_method(const TracedText& text, const Arguments& arguments,
                                        Limits& limits);

}  // namespace finetune::chat
