// SPDX-License-Identifier: MIT
// Makes one mistake that a program for GPUs can make, chosen by the argument, and prints the first
// value of the result. planted_faults_test.cpp runs each with the pretend accelerator preloaded.
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>

namespace {

constexpr int64_t kValues = 1000;

at::TensorOptions on_device() { return at::TensorOptions().device(*at::getAccelerator(), 0); }

at::Tensor pinned_twos() {
  const at::Tensor tensor = at::empty({kValues}, at::TensorOptions().pinned_memory(true));
  tensor.fill_(2.0);
  return tensor;
}

}  // namespace

// A named function, so that it appears in the stack trace.
float read_device_memory_on_the_host(const at::Tensor& tensor) {
  return tensor.const_data_ptr<float>()[0];
}

namespace {

float add_tensors_of_two_devices() {
  return (at::ones({kValues}, on_device()) + at::ones({kValues})).cpu().item<float>();
}

float read_a_copy(bool waits) {
  const at::Tensor target = pinned_twos();
  target.copy_(at::ones({kValues}, on_device()), /*non_blocking=*/true);
  if (waits) at::accelerator::synchronizeDevice(0);
  return target.const_data_ptr<float>()[0];
}

float overwrite_the_source_of_a_copy(bool waits) {
  const at::Tensor source = pinned_twos();
  const at::Tensor target = at::ones({kValues}, on_device());
  target.copy_(source, /*non_blocking=*/true);
  if (waits) at::accelerator::synchronizeDevice(0);
  source.mutable_data_ptr<float>()[0] = 7.0F;
  return target[0].item<float>();
}

const std::map<std::string, std::function<float()>> kFaults = {
    {"none", [] { return (at::ones({kValues}, on_device()) + 1)[0].item<float>(); }},
    {"raw_read", [] { return read_device_memory_on_the_host(at::ones({kValues}, on_device())); }},
    {"mixed_devices", add_tensors_of_two_devices},
    {"read_before_wait", [] { return read_a_copy(/*waits=*/false); }},
    {"read_after_wait", [] { return read_a_copy(/*waits=*/true); }},
    {"overwrite_before_wait", [] { return overwrite_the_source_of_a_copy(/*waits=*/false); }},
    {"overwrite_after_wait", [] { return overwrite_the_source_of_a_copy(/*waits=*/true); }},
    {"native_dropout",
     [] { return at::dropout(at::ones({kValues}, on_device()), 0.5, true)[0].item<float>(); }},
    {"fresh_memory", [] { return at::empty({kValues}, on_device())[0].item<float>(); }},
    {"freed_memory",
     [] {
       at::full({kValues}, 3.0, on_device());
       return at::empty({kValues}, on_device())[0].item<float>();
     }},
    {"too_much_memory", [] { return at::ones({int64_t{1} << 20}, on_device())[0].item<float>(); }},
};

}  // namespace

int main(int /*count*/, char** arguments) {
  try {
    std::printf("%g\n", kFaults.at(arguments[1])());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
