// SPDX-License-Identifier: MIT
#include "train/session/session_trackers.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/config/dump.h"
#include "finetune/report/metrics_file.h"

namespace finetune {
namespace {

constexpr double kTrackerSeconds = 300;
// Everything is saved by then, and a second signal leaves at once.
constexpr double kTrackerSignalSeconds = 60;

}  // namespace

SessionTrackers::SessionTrackers(const LoadedConfig& config, bool is_first) : args_(config.args) {
  if (!is_first) return;
  for (const std::string& name : args_.report_to) {
    if (!is_package_tracker(name)) continue;
    try {
      runs_.push_back({.tracker = name,
                       .python = tracker_interpreter(name),
                       .folder = {},
                       .metrics = {},
                       .run_id = {},
                       .name = {},
                       .project = args_.project});
    } catch (const Error& error) {
      throw Error(error.kind(),
                  config.where("report_to") + ": report_to: " + std::string(error.what()));
    }
  }
}

void SessionTrackers::write(RunStorage& storage, bool is_finished) {
  if (storage.folder().session_log().run_id().empty()) return;
  for (TrackedRun& run : runs_) {
    run.is_finished = is_finished;
    write_one(run, storage);
  }
}

void SessionTrackers::write_one(TrackedRun& run, RunStorage& storage) const {
  const double start = interrupt::seconds_since_boot();
  const auto gives_up = [&] {
    const double limit = interrupt::is_requested() ? kTrackerSignalSeconds : kTrackerSeconds;
    return interrupt::seconds_since_boot() > start + limit;
  };
  const std::string& shown = storage.folder().shown();
  run.folder = shown;
  run.metrics = join_path(storage.folder().config().args.output_dir, kMetricsFile);
  run.run_id = storage.folder().session_log().run_id();
  run.name = args_.run_name.value_or(file_name(shown));
  try {
    const std::string folder = write_tracked_run(run, to_json(args_), gives_up);
    log::info(run.tracker + ": the run is in " + folder +
              (run.tracker == "wandb" ? "; `wandb sync` uploads it" : ""));
  } catch (const Error& error) {
    log::warning(std::string(error.what()) + "; metrics.jsonl has every value, and the next " +
                 "session writes them again");
  }
}

}  // namespace finetune
