// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/json_text.h"

namespace finetune {

// Returns what is wrong with the names in lr_scheduler_kwargs for this lr_scheduler_type; empty if
// nothing is. The schedule itself checks the values.
[[nodiscard]] std::string find_schedule_problem(const std::string& type, const JsonText& arguments);

}  // namespace finetune
