// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>

// SIGTERM, SIGINT and SIGUSR1 request an orderly stop: the handler sets a flag that every phase
// polls at its own interval (micro-batch, evaluation batch, tokenised block). A second signal exits
// at once with 128 + its number. A session limit requests a stop through the same flag.
namespace finetune::interrupt {

void install_handlers();
// From now on a signal interrupts a blocking read (standard input of an interactive command), which
// then looks like the end of the file: call throw_if_requested() after it.
void break_reads();
[[nodiscard]] bool is_requested();
// Returns "SIGTERM", or the reason passed to request_at(); empty if no stop was requested.
[[nodiscard]] std::string signal_name();

// Throws Interrupted(phase) if a stop was requested. For phases with nothing to save.
void throw_if_requested(const std::string& phase);

// Requests a stop at `moment` of seconds_since_boot(): from then on is_requested() returns true and
// signal_name() returns `reason`. Another call replaces the moment. A later signal counts as the
// first one, so that a save in progress completes.
void request_at(double moment, const std::string& reason);
// Whether the stop was requested by request_at().
[[nodiscard]] bool is_moment_reached();

// Returns the seconds since boot, including time asleep. Monotonic.
[[nodiscard]] double seconds_since_boot();

// Forwards a signal to another process of this program. If a terminal or batch system sent the
// signal to both, the receiver counts it once.
void forward(pid_t process, int signal_number);

// Requests a stop as if by a signal; for tests and internal use.
void request(int signal_number);
void reset();

}  // namespace finetune::interrupt
