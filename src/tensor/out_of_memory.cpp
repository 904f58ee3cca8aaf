// SPDX-License-Identifier: MIT
#include "finetune/tensor/out_of_memory.h"

namespace finetune {

bool is_lack_of_memory(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    // CUDA's libraries also allocate memory outside torch's allocator. cuBLAS reports
    // NOT_INITIALIZED if it cannot allocate the handle of a thread's first product. XLA says
    // RESOURCE_EXHAUSTED of a TPU's memory, when it compiles and when it runs.
    for (const char* sign : {"can't allocate memory", "not enough memory", "out of memory",
                             "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED",
                             "CUSOLVER_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
                             "CUDNN_STATUS_NOT_INITIALIZED", "RESOURCE_EXHAUSTED"}) {
      if (text.find(sign) != std::string::npos) return true;
    }
  } catch (const std::exception& error) {
    // oneDNN reports no other reason
    const std::string text = error.what();
    for (const char* sign : {"could not create a primitive", "could not create a memory object",
                             "could not create a memory"}) {
      if (text.find(sign) != std::string::npos) return true;
    }
  } catch (...) {
  }
  return false;
}

}  // namespace finetune
