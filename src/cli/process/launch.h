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

// How many ranks the keys and the environment ask for, and who starts them.
struct Launch {
  int64_t processes = 1;                      // started here on this machine
  std::optional<Membership> membership = {};  // started by a launcher
};

// Throws Error(kConfig) if num_processes and a launcher's number differ, if this build cannot
// connect processes, or if a requested device is not available in libtorch.
[[nodiscard]] Launch plan_launch(const LoadedConfig& config);

// Calls `work` in each rank with the world they form. For a single process it is called here with
// null.
//
// If the ranks are started here, this process does nothing else. It forwards a stop to all of them
// once (interrupt::forward), and kills only ranks that hang. The exit code is that of the first
// rank that failed; if a rank was killed or hung, the others exit too, one message names it and the
// code is 75. Requires: no threads yet, nothing of libtorch was used.
[[nodiscard]] int launch(const Launch& plan, const LoadedConfig& config,
                         const std::function<int(std::shared_ptr<World>)>& work);

// Ends this process without running destructors of static objects. Those of libtorch take a quarter
// of the time of a short command and release only what the kernel releases anyway; after launch()
// has made several processes, an error in one of them would crash the process after everything was
// saved. Requires: C++ streams are flushed.
[[noreturn]] void exit_process(int code);

// Returns "SLURM_PROCID=1" in a rank other than 0 that a launcher started, else an empty string.
[[nodiscard]] std::string launched_beside_first();

// For a command that runs in one process: returns false, and prints that nothing is done, in all of
// a launcher's ranks but rank 0.
[[nodiscard]] bool works_here(const std::string& command);
// For the same commands: throws Error(kUsage) if the command line requests several processes. A
// request in a file was written for the training and is ignored.
void refuse_several(const std::string& command, const LoadedConfig& config);

}  // namespace finetune::cli
