// SPDX-License-Identifier: MIT
#include "cli/process/outcome.h"

#include <exception>
#include <string>
#include <system_error>

#include "cli/process/standard_output.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/tensor/gpu.h"

namespace finetune::cli {

int exit_code_of(const std::function<int()>& work,
                 const std::function<bool(const std::string&)>& may_say) {
  try {
    return work();
  } catch (const Error& error) {  // the user can act on it
    if (may_say(error.what())) log::error(error.what());
    return error.exit_code();
  } catch (const ReaderLeft&) {
    return kExitFinished;
  } catch (const PeerLost& lost) {
    if (*lost.what() != '\0') log::error(lost.what());
    return kExitStoppedEarly;
  } catch (const Interrupted& stop) {
    log::warning("stopped by " + interrupt::signal_name() + " while " + stop.what() +
                 (interrupt::is_moment_reached()
                      ? "; it leaves too little time to begin, so nothing was trained"
                      : "; run the same command again to resume"));
    return kExitStoppedEarly;
  } catch (const std::exception& error) {
    if (const std::string device(lost_device(error)); !device.empty()) {
      const std::string first_line = error.what();
      log::error("the " + device + " failed (" + first_line.substr(0, first_line.find('\n')) +
                 "), so nothing could be saved from its memory; run the same command again to "
                 "resume from the last checkpoint");
      return kExitStoppedEarly;
    }
    const auto* refused = dynamic_cast<const std::system_error*>(&error);
    const bool is_limit =
        refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again;
    const std::string what = error.what();  // libtorch appends its stack trace
    const std::string line = what.substr(0, what.find('\n'));
    // Anything else is a bug of this program.
    const std::string text =
        is_limit ? kNoMoreThreads : "internal error, please report it: " + line;
    if (may_say(text)) log::error(text);
    log::debug(what);
    return kExitFailed;
  }
}

}  // namespace finetune::cli
