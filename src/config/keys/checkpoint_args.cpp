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
  field("save_strategy", &CheckpointArgs::save_strategy, "When to save a checkpoint.",
        {.choices = {"no", "steps", "epoch", "best"}});
  field("save_steps", &CheckpointArgs::save_steps,
        "Number of updates between checkpoints; a value below 1 is a fraction of all updates.",
        {.range = {.min = 0, .above_min = true}, .steps = true});
  field("save_total_limit", &CheckpointArgs::save_total_limit,
        "Number of newest checkpoints to keep; unset: all.", {.range = {.min = 1}});
  field("save_only_model", &CheckpointArgs::save_only_model,
        "Save weights without the optimizer; a resumed run begins with a new optimizer.");
  field("async_save", &CheckpointArgs::async_save,
        "Write checkpoints in the background during training.", {.resume = ResumePolicy::kFree});
  field("resume_from_checkpoint", &CheckpointArgs::resume_from_checkpoint,
        "Checkpoint to resume from: \"auto\" (the newest valid one of output_dir), a path, or "
        "\"none\".",
        {.choices = {"auto", "none"},
         .spellings = {{"true", "auto"}, {"false", "none"}, {"null", "auto"}},
         .resume = ResumePolicy::kFree,
         .path = PathKind::kPathUnlessChoice});
  field("mirror_dir", &CheckpointArgs::mirror_dir,
        "Second, slow place to which each checkpoint is copied in the background and verified: a "
        "folder (such as Google Drive), or a bucket that rclone reaches (s3://BUCKET/FOLDER, "
        "gs://..., azure://..., rclone:REMOTE:FOLDER); a run resumes from the newest valid "
        "checkpoint of both places.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPathOrBucket});
  field(
      "mirror_verify", &CheckpointArgs::mirror_verify,
      "Verification of the copies in the mirror: hash (the hashes of the bucket; read where it has "
      "none), read (each file is downloaded and compared), or none (only sizes are compared).",
      {.choices = {"hash", "read", "none"}, .resume = ResumePolicy::kFree});
  field("mirror_total_limit", &CheckpointArgs::mirror_total_limit,
        "Checkpoints kept in the mirror; unset: save_total_limit.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFree});
  field("mirror_grace_seconds", &CheckpointArgs::mirror_grace_seconds,
        "Longest time after a signal in which copying to the mirror continues.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFree});
  field("trash_safe_delete", &CheckpointArgs::trash_safe_delete,
        "Empty files before deleting them, so that the trash of a Drive takes no space; \"auto\": "
        "if the folder is on such a mount.",
        {.choices = {"auto", "true", "false"}, .resume = ResumePolicy::kFree});
}

void SessionArgs::describe(FieldList& field) {
  const FieldSpec amount{.range = {.min = 0, .above_min = true}, .resume = ResumePolicy::kFree};
  const FieldSpec command{.resume = ResumePolicy::kFree, .list_only = true};
  field.section("Session");
  field("session_hours", &SessionArgs::session_hours,
        "Hours after which the run saves and stops with exit code 75.", amount);
  field("session_deadline", &SessionArgs::session_deadline,
        "Time by which the run saves and stops with exit code 75: 23:30, or 2030-01-31T23:30 with "
        "or without a time zone.",
        {.resume = ResumePolicy::kFree});
  field("session_clock", &SessionArgs::session_clock,
        "Start of session_hours; unset: the machine's boot in a hosted notebook, else the start of "
        "the process.",
        {.choices = {"boot", "process"}, .resume = ResumePolicy::kFree});
  field("save_minutes", &SessionArgs::save_minutes,
        "Minutes between additional saves; 0: none; unset: 1, or more if saves would take more "
        "than 1 % of the time.",
        {.range = {.min = 0}, .resume = ResumePolicy::kFree});
  field("on_sighup", &SessionArgs::on_sighup,
        "Reaction to SIGHUP (a closed terminal or a lost SSH connection): \"ignore\", or \"stop\", "
        "which saves and exits with 75 like SIGTERM.",
        {.choices = {"ignore", "stop"}, .resume = ResumePolicy::kFree});
  field("on_finish_command", &SessionArgs::on_finish_command,
        "Program and arguments to run when the run has finished.", command);
  field("on_interrupt_command", &SessionArgs::on_interrupt_command,
        "Program and arguments to run when the run has stopped early with everything saved.",
        command);
  field("on_failure_command", &SessionArgs::on_failure_command,
        "Program and arguments to run when the run has failed, crashed or been killed.", command);
  field("hardware", &SessionArgs::hardware,
        "Name of the machine in the price list (colab_t4), or {units_per_hour, price_per_unit, "
        "currency}.",
        {.resume = ResumePolicy::kFree, .named = true});
  field("unit_budget", &SessionArgs::unit_budget,
        "Units, summed over all sessions, after which the run saves and stops with exit code 75.",
        amount);
}

}  // namespace finetune
