// SPDX-License-Identifier: MIT
#include "finetune/config/checkpoint_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void CheckpointArgs::describe(FieldList& field) {
  field.section("Checkpoints and resuming");
  field("output_dir", &CheckpointArgs::output_dir, "Folder for checkpoints, results and the model.",
        {.spellings = {{"null", "trainer_output"}},
         .resume = ResumePolicy::kFree,
         .path = PathKind::kPath});
  field("save_strategy", &CheckpointArgs::save_strategy, "When a checkpoint is saved.",
        {.choices = {"no", "steps", "epoch", "best"}});
  field("save_steps", &CheckpointArgs::save_steps,
        "Updates between two checkpoints; below 1 a share of all updates.",
        {.range = {.min = 0, .above_min = true}, .steps = true});
  field("save_total_limit", &CheckpointArgs::save_total_limit,
        "Complete checkpoints to keep; unset keeps all.", {.range = {.min = 1}});
  field("save_only_model", &CheckpointArgs::save_only_model,
        "Save weights without the optimizer; resuming starts a fresh one.");
  field("async_save", &CheckpointArgs::async_save,
        "Write checkpoints in the background, while training continues.",
        {.resume = ResumePolicy::kFree});
  field("resume_from_checkpoint", &CheckpointArgs::resume_from_checkpoint,
        "Where to resume from: \"auto\" (the newest valid checkpoint of output_dir), a path, or "
        "\"none\".",
        {.choices = {"auto", "none"},
         .spellings = {{"true", "auto"}, {"false", "none"}, {"null", "auto"}},
         .resume = ResumePolicy::kFree,
         .path = PathKind::kPathUnlessChoice});
  field("mirror_dir", &CheckpointArgs::mirror_dir,
        "A second, slow place (Google Drive) that each checkpoint is copied to in the background "
        "and verified at; resuming takes the newest valid one of both.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("trash_safe_delete", &CheckpointArgs::trash_safe_delete,
        "Empty files before deleting them, so that a Drive's trash holds nothing; \"auto\": if the "
        "path is on such a mount.",
        {.choices = {"auto", "true", "false"}, .resume = ResumePolicy::kFree});
}

void SessionArgs::describe(FieldList& field) {
  const FieldSpec amount{.range = {.min = 0, .above_min = true}, .resume = ResumePolicy::kFree};
  const FieldSpec command{.resume = ResumePolicy::kFree, .list_only = true};
  field.section("Session");
  field("session_hours", &SessionArgs::session_hours,
        "Hours after which the run has saved and stopped, with exit code 75.", amount);
  field("session_deadline", &SessionArgs::session_deadline,
        "Time at which the run has saved and stopped: 23:30, or 2030-01-31T23:30 with or without "
        "a zone.",
        {.resume = ResumePolicy::kFree});
  field("session_clock", &SessionArgs::session_clock,
        "Where session_hours are counted from; unset: the boot in a hosted notebook, else the "
        "process.",
        {.choices = {"boot", "process"}, .resume = ResumePolicy::kFree});
  field("save_minutes", &SessionArgs::save_minutes,
        "Minutes between additional saves; 0: none; unset: every minute, or less "
        "often where that would cost more than 1 % of the time.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFree});
  field(
      "on_sighup", &SessionArgs::on_sighup,
      "What SIGHUP (a closed terminal or a lost SSH connection) does: \"ignore\" it, or \"stop\", "
      "which saves and exits with 75 as SIGTERM does.",
      {.choices = {"ignore", "stop"}, .resume = ResumePolicy::kFree});
  field("on_finish_command", &SessionArgs::on_finish_command,
        "Program and arguments to run when the run is finished.", command);
  field("on_interrupt_command", &SessionArgs::on_interrupt_command,
        "Program and arguments to run when the run stopped early with everything saved.", command);
  field("on_failure_command", &SessionArgs::on_failure_command,
        "Program and arguments to run when the run failed, crashed or was killed.", command);
  field("hardware", &SessionArgs::hardware,
        "Name of the machine in the price list (colab_t4), or {units_per_hour, price_per_unit, "
        "currency}.",
        {.resume = ResumePolicy::kFree, .named = true});
  field("unit_budget", &SessionArgs::unit_budget,
        "Units of all sessions together after which the run has saved and stopped.", amount);
}

}  // namespace finetune
