// SPDX-License-Identifier: MIT
#pragma once

// Preparations that must run before the shared libraries are initialised, from .preinit_array.
namespace finetune::cli {

// Raises a soft stack limit (ulimit -Ss) that is too small for libtorch, for this thread and later
// ones, up to the hard limit; if that is too small as well, prints an error and exits with 1. Safe
// before the shared libraries are initialised: needs a few hundred bytes of stack and no heap.
void require_stack();

// Makes threads that wait for each other sleep instead of spin, unless the user has configured
// this: on cores shared with other programs, a spinning thread occupies the core that the awaited
// thread needs. The OpenMP library, whose threads libtorch, MKL and oneDNN use, reads
// OMP_WAIT_POLICY once, when it is loaded, so this must run in .preinit_array; `environment` is its
// third argument. If no variable can be replaced (see the source file), the library's default
// remains.
void set_wait_policy(char** environment);

// Restores the user's environment in main(), for commands started later.
void restore_environment();

}  // namespace finetune::cli
