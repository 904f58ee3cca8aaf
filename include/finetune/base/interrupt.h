// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

// SIGTERM, SIGINT and SIGUSR1 ask for an orderly stop: the handler sets a flag, every phase polls
// it at its own grain (micro-batch, evaluation batch, tokenised block). A second signal leaves at
// once with 128 + its number. A limit of the session asks the same way, through the same poll.
namespace finetune::interrupt {

void install_handlers();
// From here on a signal ends a blocking read (standard input of an interactive command), which then
// looks like the end of the file: call throw_if_requested() after it.
void break_reads();
[[nodiscard]] bool is_requested();
// "SIGTERM", or the reason given to request_at(); empty if there was no request.
[[nodiscard]] std::string signal_name();

// Throws Interrupted(phase) when a stop was asked for. For phases that have nothing to save.
void throw_if_requested(const std::string& phase);

// From `moment` of seconds_since_boot() on, is_requested() is true and signal_name() returns
// `reason`. Another call moves the moment. A signal after it counts as the first one, so that a
// save in progress completes.
void request_at(double moment, const std::string& reason);
// Whether a moment of request_at() is what asked for the stop.
[[nodiscard]] bool is_moment_reached();

// Seconds since the machine's boot, time asleep included. Never jumps.
[[nodiscard]] double seconds_since_boot();

// Passes a signal on to another process of ours. One that a terminal or a batch system sent to
// both of them still counts as one there.
void forward(pid_t process, int signal_number);

// For tests and for internal stops: as if a signal had come.
void request(int signal_number);
void reset();

}  // namespace finetune::interrupt
