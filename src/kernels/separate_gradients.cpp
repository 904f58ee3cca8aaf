// SPDX-License-Identifier: MIT
#include "finetune/kernels/separate_gradients.h"

#include "finetune/base/error.h"

namespace finetune {
namespace {

struct Separate {
  const ParameterStore* store = nullptr;
  std::vector<Tensor>* gradients = nullptr;
};

thread_local Separate of_this_thread;

}  // namespace

SeparateGradients::SeparateGradients(const ParameterStore& store, std::vector<Tensor>& gradients) {
  FT_CHECK(store.gradient_format() == GradientFormat::kFloat32,
           "separate gradients are not rounded");
  FT_CHECK(of_this_thread.store == nullptr, "one set of separate gradients a thread");
  gradients.resize(store.parameters().size());
  of_this_thread = {.store = &store, .gradients = &gradients};
}

SeparateGradients::~SeparateGradients() { of_this_thread = {}; }

std::vector<Tensor>* SeparateGradients::of(const ParameterStore& store) {
  return of_this_thread.store == &store ? of_this_thread.gradients : nullptr;
}

}  // namespace finetune
