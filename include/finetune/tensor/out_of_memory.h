// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "finetune/base/error.h"

namespace finetune {

// Whether an exception reports an out-of-memory condition, on the host or on a device.
[[nodiscard]] bool is_lack_of_memory(const std::exception_ptr& exception);

// Runs `action` and converts libtorch's out-of-memory exceptions to Error(kDevice), one sentence
// that ends in `advice`; its other exceptions are reduced to their first line.
template <class Action>
auto explaining_lack_of_memory(const std::string& advice, const Action& action) {
  try {
    return action();
  } catch (const c10::OutOfMemoryError&) {
    throw Error(ErrorKind::kDevice, "out of memory on the device; " + advice);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kDevice, "out of memory; " + advice);
  } catch (const c10::Error& error) {
    if (is_lack_of_memory(std::current_exception())) {
      throw Error(ErrorKind::kDevice, "out of memory; " + advice);
    }
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  } catch (const std::exception&) {  // oneDNN's exceptions
    if (!is_lack_of_memory(std::current_exception())) throw;
    throw Error(ErrorKind::kDevice, "out of memory; " + advice);
  }
}

}  // namespace finetune
