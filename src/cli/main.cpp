// SPDX-License-Identifier: MIT
#include "cli/process/commands.h"
#include "cli/process/early_start.h"
#include "finetune/base/interrupt.h"

// Runs before the constructors of the shared libraries, which take a fraction of a second for
// libtorch: a stop during that time must exit with 75 too, and the OpenMP library reads its
// settings then.
extern "C" {
static void install_early(int, char**, char** environment) {
  finetune::cli::require_stack();
  finetune::interrupt::install_handlers();
  finetune::cli::set_wait_policy(environment);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const kInstallEarly)(int, char**, char**) = install_early;
}

int main(int argc, char** argv) {
  using namespace finetune;
  cli::restore_environment();
  cli::run_as_program(argc > 0 ? argv[0] : nullptr, {argv + 1, argv + argc});
}
