// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>

#include "finetune/config/load.h"
#include "finetune/distributed/membership.h"

namespace finetune {
class World;
}

namespace finetune::cli {

// How many processes the keys and the environment ask for, and who starts them.
struct Launch {
  int64_t processes = 1;                      // of this machine, started here
  std::optional<Membership> membership = {};  // started by somebody else
};

// Throws Error(kConfig) where num_processes and a launcher's world differ, where this build has no
// way to join processes, or where a device is asked for that libtorch has not.
[[nodiscard]] Launch plan_launch(const LoadedConfig& config);

// Does `work` in each of the processes, with the world that they form. Without any it is called
// here, with null.
//
// Started here: this process does nothing else. Stops are passed on to all, once
// (interrupt::forward), and nobody is killed but a process that hangs. The first that failed gives
// the exit code; where one was killed or hung, the others leave too, one message names it and the
// code is 75. Requires: no threads yet, nothing of libtorch was used.
[[nodiscard]] int launch(const Launch& plan, const LoadedConfig& config,
                         const std::function<int(std::shared_ptr<World>)>& work);

// Ends this process without running destructors of static objects. Those of libtorch take a quarter
// of the time of a short command and release only what the kernel releases anyway; after launch()
// made several processes, an error in one of them would be a crash after everything was saved.
// Requires: streams of C++ are flushed.
[[noreturn]] void exit_process(int code);

// "SLURM_PROCID=1" in a process that a launcher started beside rank 0, else empty.
[[nodiscard]] std::string launched_beside_first();

// For a command that works in one process: false beside rank 0 of a launcher's processes, where a
// line says that nothing is done.
[[nodiscard]] bool works_here(const std::string& command);
// For the same: throws Error(kUsage) where the command line asks for several processes. A file that
// does was written for the training.
void refuse_several(const std::string& command, const LoadedConfig& config);

}  // namespace finetune::cli
