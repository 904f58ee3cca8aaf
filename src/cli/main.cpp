// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/process/commands.h"
#include "cli/process/early_start.h"
#include "cli/process/launch.h"
#include "cli/process/outcome.h"
#include "cli/process/standard_output.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/printable.h"
#include "finetune/tensor/device.h"

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
  set_command_name(argc > 0 ? argv[0] : nullptr);
  // Data may have more files than the usual limit of 1,024.
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  // If a standard stream is closed, open /dev/null, so that no file of ours gets its number and
  // then our messages.
  for (int stream = 0; stream <= 2; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
  cli::exit_process(cli::exit_code_of([&] {
    interrupt::throw_if_requested("starting");
    choose_vector_math();
    const int code = cli::run({argv + 1, argv + argc});
    (void)cli::flush_standard_output();
    return code;
  }));
}
