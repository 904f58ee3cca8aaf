// SPDX-License-Identifier: MIT
#pragma once

// What has to be done before the shared libraries are initialised, from .preinit_array.
namespace finetune::cli {

// Raises a soft stack limit (ulimit -Ss) that is too small for libtorch, for this thread and those
// to come, as far as the hard limit allows; where that is too small as well, prints one error line
// and exits with 1. Safe before the shared libraries are initialised: needs a few hundred bytes of
// stack and no heap.
void require_stack();

// Makes threads that wait for each other sleep instead of spinning, unless the user has set how
// they wait: on cores shared with other programs, a spinning thread takes the core that the thread
// it waits for needs. The OpenMP library, whose threads libtorch, MKL and oneDNN use, reads
// OMP_WAIT_POLICY once, when it is loaded. So this is for .preinit_array; `environment` is its
// third argument. Where no variable can be borrowed (see the source) the library's default stays.
void set_wait_policy(char** environment);

// In main(): the environment is the user's again, for the commands that are started with it.
void restore_environment();

}  // namespace finetune::cli
