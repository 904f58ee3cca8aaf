// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune {

enum class ProgressMode {
  kAuto,   // kBar if standard error is a terminal or a notebook cell, otherwise kPlain
  kBar,    // one line that is rewritten, at most twice a second
  kPlain,  // a line for every log() and one every minute
  kJson,   // like kPlain as JSON objects, one every second
  kNone,
};

// New values to show; unset ones keep their last value.
struct ProgressFigures {
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> tokens_per_second = {};
  std::optional<int64_t> memory_mib = {};  // current peak
  std::optional<std::string> cost = {};    // "3.21 units (37.02 JPY) spent, ... to go"
  std::optional<double> epoch = {};
  std::optional<int64_t> next_save = {};            // position of the next scheduled checkpoint
  std::optional<double> session_seconds_left = {};  // until the session's limit
  std::optional<double> ceiling_share = {};  // fraction of the FLOP/s measured for matrix products
};

// Steps at the beginning of a session that allocate memory and load libraries: they are slower than
// the others, and no forecast should count them.
inline constexpr int64_t kSlowSteps = 3;

// The state of the innermost phase.
struct ProgressSnapshot {
  std::string phase;
  std::string unit;
  int64_t done = 0;
  int64_t total = 0;   // <= 0: unknown
  double elapsed = 0;  // seconds since the phase was opened
  double rate = 0;     // units per second; 0: not known yet
  ProgressFigures figures;

  [[nodiscard]] std::optional<double> seconds_left() const;
};
// Returns the known members of the snapshot as JSON: "phase", "done", "total", "loss", ...
[[nodiscard]] nlohmann::ordered_json to_json(const ProgressSnapshot& snapshot);

// Where progress is written: standard error by default; tests inject a clock and a sink.
struct ProgressOutput {
  std::function<double()> now;                  // seconds, monotonic
  std::function<void(std::string_view)> write;  // called under the log's lock
  std::function<int()> width;                   // columns of the terminal
  bool is_terminal = false;
  bool has_color = false;                  // from NO_COLOR and FORCE_COLOR, otherwise is_terminal
  std::function<double()> unix_time = {};  // for the expected time of completion; unset: not shown

  [[nodiscard]] static ProgressOutput standard_error();
};

// Shows the progress of a phase:
//   train  37% |#######             | 740/2000 [01:12<02:03, 10.2 step/s, 8.4k tok/s] loss 4.213
//   ...
//
// Log lines and the bar do not mix (log::set_status_line). All members must be called from one
// thread; other threads may log. At most one display may have a phase open at a time.
class ProgressDisplay {
 public:
  explicit ProgressDisplay(ProgressMode mode,
                           ProgressOutput output = ProgressOutput::standard_error());
  ~ProgressDisplay();  // ends all open phases
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // Opens a phase ("read", "tokenise", "train", "evaluate"). `total` <= 0: unknown. `done` > 0:
  // resumed there; rate and remaining time are measured from it. Phases nest: an evaluation during
  // training replaces the line until its end().
  void begin(std::string phase, int64_t total, int64_t done = 0, std::string unit = "step");

  // Cheap: redraws at most as often as the mode allows. Does nothing without an open phase.
  void update(int64_t done, const ProgressFigures& figures = {});

  // Reports a logged step: prints a permanent line; the bar continues below it.
  void log(int64_t done, const ProgressFigures& figures = {});

  // Reports progress of work that usually is short. It becomes a nested phase, shown once it takes
  // longer than a second; it ends at `total` or with the next call of any other member.
  void step(const std::string& phase, int64_t done, int64_t total, const std::string& unit);

  // Closes the innermost phase. Prints its last state: of an outermost phase if no log() has
  // printed it, of a nested phase only in plain mode.
  void end();

  [[nodiscard]] ProgressMode mode() const { return mode_; }  // never kAuto
  // Returns the columns that a line of text may take; nullopt where lines are not wrapped: in a
  // file or a pipe, and as JSON.
  [[nodiscard]] std::optional<int64_t> text_columns() const;
  // Called with every begin(), update() and log(), in every mode.
  void observe(std::function<void(const ProgressSnapshot&)> observer) {
    observer_ = std::move(observer);
  }

 private:
  struct Point {
    double time;
    int64_t done;
  };
  struct Phase {
    std::string name;
    std::string unit;
    int64_t total = 0;
    int64_t done = 0;
    double begun = 0;
    double last_line = 0;          // time of the last plain line
    int64_t last_line_done = -1;   // position of the last plain line
    std::deque<Point> points;      // of the last minutes, for rate and remaining time
    std::optional<Point> settled;  // after the slow steps at the beginning
    ProgressFigures figures;

    [[nodiscard]] double rate(double now) const;  // 0 if not known yet
  };

  [[nodiscard]] std::string plain_line(const Phase& phase, double now, int64_t columns) const;
  [[nodiscard]] std::string bar_line(const Phase& phase, double now, int columns) const;
  [[nodiscard]] std::string end_text(const Phase& phase, double now) const;
  [[nodiscard]] std::string painted(const std::string& line) const;
  static ProgressSnapshot snapshot(const Phase& phase, double now);
  void tell_observer(double now) const;

  struct Step {  // the newest one
    std::string phase;
    double begun = 0;
    int64_t begun_at = 0;
    bool is_open = false;  // it is the innermost phase
  };

  void open(Phase phase, double now);
  void show(int64_t done, const ProgressFigures& figures);
  void close();
  void close_step();
  double note(int64_t done, const ProgressFigures& figures);  // returns the time
  void draw(double now);
  void write_plain(double now);
  void write_json(const char* event, double now);
  void erase();
  void redraw();

  ProgressMode mode_;
  ProgressOutput output_;
  std::function<void(const ProgressSnapshot&)> observer_;
  std::vector<Phase> phases_;
  std::string bar_;  // the current status line; guarded by the log's lock
  double last_drawn_ = 0;
  Step step_;
};

}  // namespace finetune
