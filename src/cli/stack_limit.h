// SPDX-License-Identifier: MIT
#pragma once

namespace finetune::cli {

// Raises a soft stack limit (ulimit -Ss) that is too small for libtorch, for this thread and those
// to come, as far as the hard limit allows; where that is too small as well, prints one error line
// and exits with 1. Safe before the shared libraries are initialised: needs a few hundred bytes of
// stack and no heap.
void require_stack();

}  // namespace finetune::cli
