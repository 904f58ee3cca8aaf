// SPDX-License-Identifier: MIT
#include "finetune/kernels/separate_gradients.h"

#include "finetune/base/error.h"
#include "kernels/kernels.h"

namespace finetune {
namespace {

struct Separate {
  const ParameterStore* store = nullptr;
  std::vector<Tensor>* gradients = nullptr;
};

thread_local Separate of_this_thread;
// Of a device's store: autograd runs a device's backward passes in its own thread, one at a time,
// and hands them over under a lock.
Separate of_device;

Separate& separate_of(const ParameterStore& store) {
  return kernels::kernels_for(store.anchor()).is_asynchronous ? of_device : of_this_thread;
}

}  // namespace

SeparateGradients::SeparateGradients(const ParameterStore& store, std::vector<Tensor>& gradients)
    : store_(store) {
  FT_CHECK(store.gradient_format() == GradientFormat::kFloat32,
           "separate gradients are not rounded");
  FT_CHECK(separate_of(store).store == nullptr, "one set of separate gradients a thread");
  gradients.resize(store.parameters().size());
  separate_of(store) = {.store = &store, .gradients = &gradients};
}

SeparateGradients::~SeparateGradients() { separate_of(store_) = {}; }

std::vector<Tensor>* SeparateGradients::of(const ParameterStore& store) {
  const Separate& separate = separate_of(store);
  return separate.store == &store ? separate.gradients : nullptr;
}

}  // namespace finetune
