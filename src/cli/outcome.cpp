// SPDX-License-Identifier: MIT
#include "cli/outcome.h"

#include <exception>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune::cli {

int exit_code_of(const std::function<int()>& work,
                 const std::function<bool(const std::string&)>& may_say) {
  try {
    return work();
  } catch (const Error& error) {  // something the user can act on
    if (may_say(error.what())) log::error(error.what());
    return error.exit_code();
  } catch (const PeerLost& lost) {
    if (*lost.what() != '\0') log::error(lost.what());
    return kExitStoppedEarly;
  } catch (const Interrupted& stop) {
    log::warning("stopped by " + interrupt::signal_name() + " while " + stop.what() +
                 (interrupt::is_moment_reached()
                      ? "; it leaves too little time to begin, so nothing was trained"
                      : "; run the same command again to go on"));
    return kExitStoppedEarly;
  } catch (const std::exception& error) {   // something we must fix
    const std::string what = error.what();  // libtorch appends its own stack
    const std::string line = what.substr(0, what.find('\n'));
    if (may_say(line)) log::error("internal error, please report it: " + line);
    log::debug(what);
    return kExitFailed;
  }
}

}  // namespace finetune::cli
