// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string_view>
#include <vector>

#include "finetune/base/clock.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/runs/run_facts.h"

namespace finetune {
namespace {

std::string number_text(const FileValue& value) {
  if (value.is_number_integer()) return value.dump();
  return value.is_number() ? figure_text(value.get<double>()) : "NaN";
}

std::string text_or_empty(const FileValue& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string step_text(const RunStatus& status) {
  const auto step = status.step;
  const auto total = status.max_steps;
  if (!step) return "";
  std::string text = std::to_string(*step);
  if (total) text += format_text(" of {} ({}%)", *total, 100 * *step / *total);
  const FileValue& epoch = status.newest.epoch;
  if (epoch.is_number()) text += ", epoch " + format_number("%.2f", epoch.get<double>());
  return text;
}

std::string loss_text(const StepValues& values) {
  if (!values.loss) return "";
  std::string text = number_text(*values.loss);
  if (!values.learning_rate.is_null()) {
    text += ", learning rate " + number_text(values.learning_rate);
  }
  if (!values.grad_norm.is_null()) text += ", gradient norm " + number_text(values.grad_norm);
  return text;
}

std::string evaluation_text(const RunStatus& status) {
  if (!status.evaluation) return "";
  std::string text;
  for (const auto& [key, value] : status.evaluation->metrics.items()) {
    text += (text.empty() ? "" : ", ") + key + " " + number_text(value);
  }
  text += " at step " + number_text(status.evaluation->step);
  if (status.best) {
    const std::string name = text_or_empty(status.best->name);
    text += "; best " + (name.empty() ? "" : name + " ") + number_text(status.best->metric);
    if (!status.best->step.is_null()) text += " at step " + number_text(status.best->step);
  }
  return text;
}

std::string speed_text(const RunStatus& status) {
  std::vector<std::string> parts;
  if (const auto rate = status.steps_per_second) {
    parts.push_back(*rate >= 1 ? figure_text(*rate) + " steps/s"
                               : figure_text(1 / *rate) + " s/step");
  }
  const StepValues& values = status.newest;
  if (values.tokens_per_second.is_number()) {
    parts.push_back(format_number("%.0f", values.tokens_per_second.get<double>()) + " tokens/s");
  }
  if (status.ceiling_share.is_number()) {
    parts.push_back(format_number("%.0f", 100 * status.ceiling_share.get<double>()) +
                    "% of the measured ceiling");
  }
  if (!values.memory_mib.is_null()) {
    std::string text = "peak memory " + number_text(values.memory_mib) + " MiB";
    const int64_t session = values.memory_session.value_or(1);
    if (session > 1) text += format_text(" of session {}", session);
    parts.push_back(std::move(text));
  }
  return join(parts);
}

// Of a run that is not running; else its sessions and the time left say it.
std::string trained_text(const RunStatus& status) {
  if (!status.trained_seconds || status.is_running()) return "";
  std::string text = duration_text(*status.trained_seconds);
  if (status.session) {
    text +=
        *status.session == 1 ? " in 1 session" : format_text(" in {} sessions", *status.session);
  }
  return text;
}

std::string left_text(const RunStatus& status) {
  const auto left = status.seconds_left;
  if (!left) return "";
  std::string text = duration_text(*left) + ", ends " + local_time_text(unix_seconds() + *left);
  const FileValue& session = status.session_seconds_left;
  if (session.is_number()) {
    text += "; this session ends in " + duration_text(std::max(0.0, session.get<double>()));
  }
  return text;
}

std::string checkpoint_text(const RunStatus& status) {
  const auto& list = status.checkpoints;
  std::string text;
  if (!status.resume_step) {
    text = list.empty() ? "none yet" : "none of " + std::to_string(list.size()) + " is valid";
  } else {
    text = "step " + std::to_string(*status.resume_step);
    for (const auto& entry : list) {
      if (entry.step != status.resume_step || entry.created_unix <= 0) continue;
      const double age = unix_seconds() - static_cast<double>(entry.created_unix);
      text += ", " + duration_text(std::max(0.0, age)) + " ago";
    }
  }
  for (const auto& entry : list) {
    if (!entry.whole) text += format_text("; step {} is invalid: {}", entry.step, entry.problem);
  }
  if (status.next_save) text += format_text("; next save at step {}", *status.next_save);
  return text;
}

std::string mirror_text(const RunStatus& status) {
  if (!status.mirror) return "";
  const RunStatus::Mirror& mirror = *status.mirror;
  if (!mirror.is_reachable) return mirror.folder + ": not reachable from here";
  std::string text = mirror.folder + (mirror.step ? format_text(": step {}", *mirror.step)
                                                  : std::string(": no checkpoint yet"));
  if (mirror.step && status.resume_step) {
    text += *mirror.step >= *status.resume_step ? ", up to date" : ", behind";
  }
  if (mirror.has_model) {
    text += *mirror.has_model ? ", with the finished model" : ", without the finished model";
  }
  return text;
}

// An error message: what happened, and what to do.
struct ErrorParts {
  std::string cause;
  std::string remedy;  // may be empty
};

// Joins the lines of a message: "a; b: c".
std::string in_one_line(std::string message) {
  for (size_t at = 0; (at = message.find('\n', at)) != std::string::npos;) {
    const size_t next = std::min(message.find_first_not_of(" \n", at), message.size());
    const bool ends_in_colon = at > 0 && message[at - 1] == ':';
    message.replace(at, next - at, next == message.size() ? "" : ends_in_colon ? " " : "; ");
  }
  return message;
}

// Messages are "what happened; what to do", or lines of which the first says what happened.
ErrorParts parts_of(const std::string& message) {
  const size_t line = message.find('\n');
  const size_t end = line != std::string::npos ? line : message.rfind("; ");
  if (end == std::string::npos) return {.cause = message, .remedy = ""};
  ErrorParts parts{.cause = message.substr(0, end),
                   .remedy = message.substr(line != std::string::npos ? end + 1 : end + 2)};
  parts.remedy = in_one_line(std::move(parts.remedy));
  parts.remedy.erase(0, parts.remedy.find_first_not_of(' '));
  return parts;
}

// A failed run shows the remedy as its next step.
std::string error_text(const RunStatus& status) {
  if (!status.last_error) return "";
  const FileValue& time = status.last_error->time;
  const std::string message = text_or_empty(status.last_error->message);
  return (time.is_number() ? local_time_text(time.get<double>()) + ": " : std::string()) +
         (status.state == "failed" ? parts_of(message).cause : in_one_line(message));
}

std::string headline(const RunStatus& status) {
  std::string text = status.output_dir + ": ";
  if (status.process) {
    text += format_text("running, process {} on '{}' since ", status.process->pid,
                        status.process->host) +
            local_time_text(static_cast<double>(status.process->since_unix));
  } else if (status.state == "stopped" && status.is_foreign) {
    text +=
        "not finished, written by transformers' Trainer, which leaves no sign of whether it "
        "is running";
  } else if (status.state == "stopped") {
    text += status.last_end
                ? "stopped with everything saved (" + text_or_empty(status.last_end->reason) + ")"
                : "not running, without a record of its end";
  } else if (status.state == "no_valid_checkpoint") {
    text += "no valid checkpoint";
  } else if (status.state == "killed") {
    text += "not running, the last session was killed";
  } else {
    text += status.state;
  }
  if (status.session) text += format_text(", session {}", *status.session);
  return text;
}

std::string advice(const RunStatus& status) {
  if (status.state == "no_valid_checkpoint") {
    return "`finetune checkpoints " + shell_word(status.output_dir) +
           "` says what is damaged; --restart starts over";
  }
  if (status.is_running() || status.state == "finished" || status.is_foreign) return "";
  if (status.state != "failed") {
    return status.resume_step ? format_text("run the same command again to resume from step {}",
                                            *status.resume_step)
                              : "nothing was saved yet; the same command starts from the beginning";
  }
  // What failed once fails again unless something changes: the remedy of the error comes first.
  const FileValue message = status.last_error ? status.last_error->message : FileValue();
  const std::string remedy = parts_of(text_or_empty(message)).remedy;
  return (remedy.empty() ? "remove the cause of the last error" : remedy) + "; " +
         (status.resume_step
              ? format_text("the training command then resumes from step {}", *status.resume_step)
              : "nothing was saved yet, so the training command then starts from the beginning");
}

}  // namespace

std::string status_text(const RunStatus& status) {
  // Names in it come from files and may contain any byte.
  std::string text = printable_line(headline(status)) + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    text += "  " + std::string(name) + std::string(13 - std::string_view(name).size(), ' ') +
            printable_line(value) + "\n";
  };
  if (!status.phase_progress.is_null()) {
    line("phase",
         text_or_empty(status.phase) + " " + number_text(status.phase_done) +
             (status.phase_total.is_null() ? "" : " of " + number_text(status.phase_total)) + " " +
             text_or_empty(status.phase_unit));
  }
  line("step", step_text(status));
  line("loss", loss_text(status.newest));
  line("evaluation", evaluation_text(status));
  line("speed", speed_text(status));
  line("time left", left_text(status));
  line("trained", trained_text(status));
  line("cost", text_or_empty(status.cost()));
  line("checkpoint", checkpoint_text(status));
  line("model", status.model.value_or(""));
  line("mirror", mirror_text(status));
  line("bucket", status.bucket_text);
  line("last error", error_text(status));
  line("next", advice(status));
  return text;
}

}  // namespace finetune
