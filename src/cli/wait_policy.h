// SPDX-License-Identifier: MIT
#pragma once

namespace finetune::cli {

// Makes threads that wait for each other sleep instead of spinning, unless the user has set how
// they wait: on cores shared with other programs, a spinning thread takes the core that the thread
// it waits for needs. The OpenMP library, whose threads libtorch, MKL and oneDNN use, reads
// OMP_WAIT_POLICY once, when it is loaded. So this is for .preinit_array; `environment` is its
// third argument. Where no variable can be borrowed (see the source) the library's default stays.
void set_wait_policy(char** environment);

// In main(): the environment is the user's again, for the commands that are started with it.
void restore_environment();

}  // namespace finetune::cli
