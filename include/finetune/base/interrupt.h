// SPDX-License-Identifier: MIT
#pragma once

#include <string>

// SIGTERM, SIGINT and SIGUSR1 ask for an orderly stop: the handler sets a flag, every phase polls
// it at its own grain (micro-batch, evaluation batch, tokenised block). A second signal leaves at
// once with 128 + its number.
namespace finetune::interrupt {

void install_handlers();
// From here on a signal ends a read that waits (standard input of an interactive command), which
// then looks like the end of the file: call throw_if_requested() behind it.
void break_reads();
[[nodiscard]] bool is_requested();
[[nodiscard]] std::string signal_name();  // "SIGTERM"; empty where none came

// Throws Interrupted(phase) when a stop was asked for. For phases that have nothing to save.
void throw_if_requested(const std::string& phase);

// For tests and for internal stops: as if a signal had come.
void request(int signal_number);
void reset();

}  // namespace finetune::interrupt
