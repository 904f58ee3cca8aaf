// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/json_text.h"

namespace finetune {

class FieldList;

// What is saved, when, and how a run resumes. describe() documents the keys.
struct CheckpointArgs {
  std::string output_dir = "trainer_output";
  std::string save_strategy = "steps";
  double save_steps = 500;  // below 1: fraction of all steps
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;
  bool async_save = true;
  std::string resume_from_checkpoint = "auto";  // after loading: "auto", "none" or a path
  std::optional<std::string> mirror_dir;
  std::string mirror_verify = "hash";
  std::optional<int64_t> mirror_total_limit;
  double mirror_grace_seconds = 25;  // clouds give 30
  std::string trash_safe_delete = "auto";

  static void describe(FieldList& field);
};

// The limits of a session, and commands that run when it ends.
struct SessionArgs {
  std::optional<double> session_hours;
  std::optional<std::string> session_deadline;
  std::optional<std::string> session_clock;
  std::optional<double> save_minutes;
  std::string on_sighup = "ignore";
  std::vector<std::string> on_finish_command;
  std::vector<std::string> on_interrupt_command;
  std::vector<std::string> on_failure_command;
  JsonText hardware;  // a JSON string (a name) or a mapping
  std::optional<double> unit_budget;

  static void describe(FieldList& field);
};

}  // namespace finetune
