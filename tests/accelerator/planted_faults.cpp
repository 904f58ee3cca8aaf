// SPDX-License-Identifier: MIT
// Makes one mistake that a program for GPUs can make, chosen by the argument, and prints the first
// value of the result. planted_faults_test.cpp runs each with the pretend accelerator preloaded.
#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

c10::Stream another_stream() {
  const c10::Device device(*at::getAccelerator(), 0);
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// What a stream that waits for all earlier work of `before` does next.
void order(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(after);
}

// Never freed, so that an exception does not end in another fault.
at::Tensor leaked(const at::Tensor& tensor) { return *new at::Tensor(tensor); }

float use_a_copy_of_another_stream(bool waits) {
  const at::Tensor target = leaked(at::empty({kValues}, on_device()));
  const at::Tensor source = pinned_twos();
  const c10::Stream own = at::accelerator::getCurrentStream(0);
  const c10::Stream other = another_stream();
  {
    const c10::StreamGuard guard(other);
    target.copy_(source, /*non_blocking=*/true);
  }
  if (waits) order(other, own);
  return (target + 1)[0].item<float>();
}

float copy_before_the_values_exist(bool waits) {
  const at::Tensor source = at::full({kValues}, 3.0, on_device());
  const at::Tensor target = pinned_twos();
  const c10::Stream own = at::accelerator::getCurrentStream(0);
  const c10::Stream other = another_stream();
  if (waits) order(own, other);
  const c10::StreamGuard guard(other);
  target.copy_(source, /*non_blocking=*/true);
  at::accelerator::synchronizeDevice(0);
  return target.const_data_ptr<float>()[0];
}

float change_a_copy_of_another_stream(bool waits) {
  const at::Tensor source = leaked(at::full({kValues}, 3.0, on_device()));
  const at::Tensor target = pinned_twos();
  const c10::Stream own = at::accelerator::getCurrentStream(0);
  const c10::Stream other = another_stream();
  order(own, other);
  {
    const c10::StreamGuard guard(other);
    target.copy_(source, /*non_blocking=*/true);
  }
  if (waits) order(other, own);
  source.fill_(4.0);
  at::accelerator::synchronizeDevice(0);
  return target.const_data_ptr<float>()[0];
}

float free_the_source_of_a_copy(bool waits) {
  at::Tensor source = at::full({kValues}, 3.0, on_device());
  const at::Tensor target = pinned_twos();
  const c10::Stream own = at::accelerator::getCurrentStream(0);
  const c10::Stream other = another_stream();
  order(own, other);
  {
    const c10::StreamGuard guard(other);
    target.copy_(source, /*non_blocking=*/true);
  }
  if (waits) order(other, own);
  source = at::Tensor();
  at::accelerator::synchronizeDevice(0);
  return target.const_data_ptr<float>()[0];
}

float wait_for_the_wrong_stream(bool waits) {
  const at::Tensor source = at::full({kValues}, 3.0, on_device());
  const at::Tensor target = pinned_twos();
  const c10::Stream own = at::accelerator::getCurrentStream(0);
  const c10::Stream other = another_stream();
  order(own, other);
  const c10::StreamGuard guard(other);
  target.copy_(source, /*non_blocking=*/true);
  (waits ? other : own).synchronize();
  const float value = target.const_data_ptr<float>()[0];
  at::accelerator::synchronizeDevice(0);
  return value;
}

const std::map<std::string, std::function<float()>> kFaults = {
    {"none", [] { return (at::ones({kValues}, on_device()) + 1)[0].item<float>(); }},
    {"raw_read", [] { return read_device_memory_on_the_host(at::ones({kValues}, on_device())); }},
    {"mixed_devices", add_tensors_of_two_devices},
    {"read_before_wait", [] { return read_a_copy(/*waits=*/false); }},
    {"read_after_wait", [] { return read_a_copy(/*waits=*/true); }},
    {"overwrite_before_wait", [] { return overwrite_the_source_of_a_copy(/*waits=*/false); }},
    {"overwrite_after_wait", [] { return overwrite_the_source_of_a_copy(/*waits=*/true); }},
    {"use_before_event", [] { return use_a_copy_of_another_stream(/*waits=*/false); }},
    {"use_after_event", [] { return use_a_copy_of_another_stream(/*waits=*/true); }},
    {"copy_before_event", [] { return copy_before_the_values_exist(/*waits=*/false); }},
    {"copy_after_event", [] { return copy_before_the_values_exist(/*waits=*/true); }},
    {"change_before_event", [] { return change_a_copy_of_another_stream(/*waits=*/false); }},
    {"change_after_event", [] { return change_a_copy_of_another_stream(/*waits=*/true); }},
    {"free_before_event", [] { return free_the_source_of_a_copy(/*waits=*/false); }},
    {"free_after_event", [] { return free_the_source_of_a_copy(/*waits=*/true); }},
    {"wait_for_wrong_stream", [] { return wait_for_the_wrong_stream(/*waits=*/false); }},
    {"wait_for_right_stream", [] { return wait_for_the_wrong_stream(/*waits=*/true); }},
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
