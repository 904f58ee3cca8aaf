// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "finetune/base/clock.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/report/duration_text.h"
#include "finetune/report/figure_text.h"
#include "finetune/runs/run_folder.h"
#include "finetune/runs/run_text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string number_text(const Json& value) {
  if (value.is_number_integer()) return value.dump();
  return value.is_number() ? figure_text(value.get<double>()) : "NaN";
}

std::string text_in(const Json& object, const std::string& name) {
  const Json value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string step_text(const Json& status) {
  const auto step = whole_number_in(status, "step");
  const auto total = whole_number_in(status, "max_steps");
  if (!step) return "";
  std::string text = std::to_string(*step);
  if (total && *total > 0) text += format_text(" of {} ({}%)", *total, 100 * *step / *total);
  if (const auto epoch = number_in(status, "epoch")) {
    text += ", epoch " + format_number("%.2f", *epoch);
  }
  return text;
}

std::string loss_text(const Json& status) {
  if (!status.contains("loss")) return "";
  std::string text = number_text(status["loss"]);
  if (status.contains("learning_rate")) {
    text += ", learning rate " + number_text(status["learning_rate"]);
  }
  if (status.contains("grad_norm")) text += ", gradient norm " + number_text(status["grad_norm"]);
  return text;
}

std::string evaluation_text(const Json& status) {
  const Json evaluation = member(status, "evaluation");
  if (!evaluation.is_object()) return "";
  std::string text;
  for (const auto& [key, value] : evaluation.items()) {
    if (key != "step") text += (text.empty() ? "" : ", ") + key + " " + number_text(value);
  }
  text += " at step " + number_text(evaluation["step"]);
  if (status.contains("best_metric")) {
    const std::string name = text_in(status, "best_metric_name");
    text += "; best " + (name.empty() ? "" : name + " ") + number_text(status["best_metric"]);
    if (status.contains("best_global_step")) {
      text += " at step " + number_text(status["best_global_step"]);
    }
  }
  return text;
}

std::string speed_text(const Json& status) {
  std::vector<std::string> parts;
  if (const auto rate = number_in(status, "steps_per_second")) {
    parts.push_back(*rate >= 1 ? figure_text(*rate) + " steps/s"
                               : figure_text(1 / *rate) + " s/step");
  }
  if (const auto rate = number_in(status, "tokens_per_second")) {
    parts.push_back(format_number("%.0f", *rate) + " tokens/s");
  }
  if (const auto share = number_in(status, "ceiling_share")) {
    parts.push_back(format_number("%.0f", 100 * *share) + "% of the measured ceiling");
  }
  if (status.contains("memory_mib")) {
    std::string text = "peak memory " + number_text(status["memory_mib"]) + " MiB";
    const auto session = number_in(status, "memory_session");
    if (session && *session > 1) text += " of session " + number_text(status["memory_session"]);
    parts.push_back(std::move(text));
  }
  return join(parts);
}

// Of a run that is not running; else its sessions and the time left say it.
std::string trained_text(const Json& status) {
  const auto seconds = number_in(status, "trained_seconds");
  if (!seconds || status["state"] == "running") return "";
  std::string text = duration_text(*seconds);
  if (const auto sessions = whole_number_in(status, "session")) {
    text += *sessions == 1 ? " in 1 session" : format_text(" in {} sessions", *sessions);
  }
  return text;
}

std::string left_text(const Json& status) {
  const auto left = number_in(status, "seconds_left");
  if (!left) return "";
  std::string text = duration_text(*left) + ", ends " + local_time_text(unix_seconds() + *left);
  if (const auto session = number_in(status, "session_seconds_left")) {
    text += "; this session ends in " + duration_text(std::max(0.0, *session));
  }
  return text;
}

std::string checkpoint_text(const Json& status) {
  if (!status.contains("checkpoints")) return "";
  const Json& list = status["checkpoints"];
  std::string text;
  if (!status.contains("resume_step")) {
    text = list.empty() ? "none yet" : "none of " + std::to_string(list.size()) + " is valid";
  } else {
    text = "step " + number_text(status["resume_step"]);
    for (const Json& entry : list) {
      if (entry["step"] != status["resume_step"] || !entry.contains("created")) continue;
      text += ", " + duration_text(std::max(0.0, unix_seconds() - entry["created"].get<double>())) +
              " ago";
    }
  }
  for (const Json& entry : list) {
    if (entry["valid"] == true) continue;
    text += "; step " + number_text(entry["step"]) + " is invalid: " + text_in(entry, "problem");
  }
  if (status["state"] == "running" && status.contains("next_save")) {
    text += "; next save at step " + number_text(status["next_save"]);
  }
  return text;
}

std::string mirror_text(const Json& status) {
  const Json mirror = member(status, "mirror");
  if (!mirror.is_object()) return "";
  std::string text = text_in(mirror, "folder");
  if (member(mirror, "reachable") != true) return text + ": not reachable from here";
  text += mirror.contains("step") ? ": step " + number_text(mirror["step"]) : ": no checkpoint yet";
  if (mirror.contains("step") && status.contains("resume_step")) {
    text += mirror["step"] >= status["resume_step"] ? ", up to date" : ", behind";
  }
  if (mirror.contains("has_model")) {
    text +=
        mirror["has_model"] == true ? ", with the finished model" : ", without the finished model";
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
std::string error_text(const Json& status) {
  const Json error = member(status, "last_error");
  if (!error.is_object()) return "";
  const auto time = number_in(error, "time");
  const std::string message = text_in(error, "message");
  return (time ? local_time_text(*time) + ": " : std::string()) +
         (status["state"] == "failed" ? parts_of(message).cause : in_one_line(message));
}

std::string headline(const Json& status) {
  const std::string state = text_in(status, "state");
  std::string text = text_in(status, "output_dir") + ": ";
  const Json end = member(status, "last_end");
  if (state == "running") {
    const Json& process = status["process"];
    text += "running, process " + number_text(process["pid"]) + " on '" + text_in(process, "host") +
            "' since " + local_time_text(process["since"].get<double>());
  } else if (state == "stopped" && status["is_foreign"] == true) {
    text +=
        "not finished, written by transformers' Trainer, which leaves no sign of whether it "
        "is running";
  } else if (state == "stopped" && !end.is_object()) {
    text += "not running, without a record of its end";
  } else if (state == "stopped") {
    text += "stopped with everything saved (" + text_in(end, "reason") + ")";
  } else if (state == "no_valid_checkpoint") {
    text += "no valid checkpoint";
  } else if (state == "killed") {
    text += "not running, the last session was killed";
  } else {
    text += state;
  }
  if (status.contains("session")) text += ", session " + number_text(status["session"]);
  return text;
}

// What failed once fails again unless something changes: the remedy of the error comes first.
std::string remedy_of_failure(const Json& status) {
  const std::string remedy = parts_of(text_in(member(status, "last_error"), "message")).remedy;
  const std::string then =
      status.contains("resume_step")
          ? "the training command then resumes from step " + number_text(status["resume_step"])
          : "nothing was saved yet, so the training command then starts from the beginning";
  return (remedy.empty() ? "remove the cause of the last error" : remedy) + "; " + then;
}

std::string advice(const Json& status) {
  const std::string state = text_in(status, "state");
  if (state == "no_valid_checkpoint") {
    return "`finetune checkpoints " + shell_word(text_in(status, "output_dir")) +
           "` says what is damaged; --restart starts over";
  }
  if (state == "killed" || state == "stopped" || state == "failed") {
    if (status["is_foreign"] == true) return "";
    if (state == "failed") return remedy_of_failure(status);
    return status.contains("resume_step")
               ? "run the same command again to resume from step " +
                     number_text(status["resume_step"])
               : "nothing was saved yet; the same command starts from the beginning";
  }
  return "";
}

}  // namespace

std::string status_text(const Json& status) {
  // Names in it come from files and may contain any byte.
  std::string text = printable_line(headline(status)) + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    text += "  " + std::string(name) + std::string(13 - std::string_view(name).size(), ' ') +
            printable_line(value) + "\n";
  };
  const Json phase = member(status, "phase_progress");
  if (phase.is_object()) {
    line("phase", text_in(phase, "phase") + " " + number_text(member(phase, "done")) +
                      (phase.contains("total") ? " of " + number_text(phase["total"]) : "") + " " +
                      text_in(phase, "unit"));
  }
  line("step", step_text(status));
  line("loss", loss_text(status));
  line("evaluation", evaluation_text(status));
  line("speed", speed_text(status));
  line("time left", left_text(status));
  line("trained", trained_text(status));
  line("cost", text_in(status, "cost"));
  line("checkpoint", checkpoint_text(status));
  line("model", text_in(status, "model"));
  line("mirror", mirror_text(status));
  line("bucket", text_in(status, "bucket_text"));
  line("last error", error_text(status));
  line("next", advice(status));
  return text;
}

}  // namespace finetune
