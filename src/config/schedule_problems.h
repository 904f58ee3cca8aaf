// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/json_text.h"

namespace finetune {

// What is wrong with lr_scheduler_kwargs for this lr_scheduler_type; empty where nothing is.
// Names only: the schedule itself knows what their values may be.
[[nodiscard]] std::string find_schedule_problem(const std::string& type, const JsonText& arguments);

}  // namespace finetune
