// SPDX-License-Identifier: MIT
#include <exception>
#include <iostream>
#include <string>

#include "cli/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"

// Before the shared libraries' own start-up, which takes a fraction of a second for libtorch: a
// stop that comes then must leave with 75 too.
extern "C" {
static void install_early(int, char**, char**) { finetune::interrupt::install_handlers(); }
__attribute__((section(".preinit_array"),
               used)) static void (*const kInstallEarly)(int, char**, char**) = install_early;
}

int main(int argc, char** argv) {
  using namespace finetune;
  try {
    interrupt::throw_if_requested("starting");
    const int code = cli::run({argv + 1, argv + argc});
    std::cout.flush();
    if (!std::cout) throw Error(ErrorKind::kIo, "standard output cannot be written");
    return code;
  } catch (const Error& error) {  // something the user can act on
    log::error(error.what());
    return error.exit_code();
  } catch (const Interrupted& stop) {
    log::warning("stopped by " + interrupt::signal_name() + " while " + stop.what() +
                 "; run the same command again to go on");
    return kExitStoppedEarly;
  } catch (const std::exception& error) {   // something we must fix
    const std::string what = error.what();  // libtorch appends its own stack
    log::error("internal error, please report it: " + what.substr(0, what.find('\n')));
    log::debug(what);
    return kExitFailed;
  }
}
