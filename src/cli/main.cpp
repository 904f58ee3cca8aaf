// SPDX-License-Identifier: MIT
#include <exception>
#include <string>

#include "cli/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"

int main(int argc, char** argv) {
  using namespace finetune;
  try {
    interrupt::install_handlers();
    return cli::run({argv + 1, argv + argc});
  } catch (const Error& error) {  // something the user can act on
    log::error(error.what());
    return error.exit_code();
  } catch (const Interrupted& stop) {
    log::warning("stopped by " + interrupt::signal_name() + " while " + stop.what() +
                 "; run the same command again to go on");
    return kExitStoppedEarly;
  } catch (const std::exception& error) {  // something we must fix
    log::error(std::string("internal error, please report it: ") + error.what());
    return kExitFailed;
  }
}
