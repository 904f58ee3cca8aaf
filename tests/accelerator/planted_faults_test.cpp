// SPDX-License-Identifier: MIT
// The pretend accelerator detects each mistake of planted_faults.cpp, and reports nothing without
// one.
#include "accelerator/accelerator.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

ProcessResult with_fault(const std::string& fault, const std::string& memory = "1000000") {
  return run({planted_faults_path(), fault},
             {.environment = {{"LD_PRELOAD", pretend_accelerator_path()},
                              {"PRETEND_ACCELERATOR_BYTES", memory}},
              .folder = "",
              .watch = ""});
}

void expect_value(const std::string& fault, const std::string& value) {
  const ProcessResult result = with_fault(fault);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, value + "\n");
}

void expect_error(const std::string& fault, const std::string& message) {
  const ProcessResult result = with_fault(fault);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(message));
}

TEST(PlantedFault, NoneIsNoFault) { expect_value("none", "2"); }

TEST(PlantedFault, ReadOfDeviceMemoryCrashesWithAStackTrace) {
  const ProcessResult result = with_fault("raw_read");
  EXPECT_EQ(result.code, 128 + SIGSEGV);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("the host touched device memory"));
  EXPECT_THAT(result.err, HasSubstr("read_device_memory_on_the_host"));
}

TEST(PlantedFault, TensorsOfTwoDevicesAreAnError) {
  expect_error("mixed_devices", "Expected all tensors to be on the same device");
}

TEST(PlantedFault, ReadBeforeAWaitIsNaN) {
  EXPECT_THAT(with_fault("read_before_wait").out, HasSubstr("nan"));
  expect_value("read_after_wait", "1");
}

TEST(PlantedFault, OverwriteBeforeAWaitAborts) {
  const ProcessResult result = with_fault("overwrite_before_wait");
  EXPECT_EQ(result.code, 128 + SIGABRT);
  EXPECT_THAT(result.err, HasSubstr("overwrote pinned memory before the device read it"));
  expect_value("overwrite_after_wait", "2");
}

TEST(PlantedFault, CopyOfAnotherStreamIsUsedAfterAnEventOnly) {
  expect_error("use_before_event", "reads memory of a copy on stream 1 without waiting for it");
  expect_value("use_after_event", "3");
  expect_error("change_before_event", "writes memory of a copy on stream 1 without waiting for it");
  expect_value("change_after_event", "3");
}

TEST(PlantedFault, CopyOnAnotherStreamStartsAfterAnEventOnly) {
  expect_error("copy_before_event", "stream 1 uses memory that stream 0 writes, without waiting");
  expect_value("copy_after_event", "3");
}

TEST(PlantedFault, FreeBeforeACopyOnAnotherStreamAborts) {
  const ProcessResult result = with_fault("free_before_event");
  EXPECT_EQ(result.code, 128 + SIGABRT);
  EXPECT_THAT(result.err, HasSubstr("freed before a copy on another stream was ordered"));
  expect_value("free_after_event", "3");
}

TEST(PlantedFault, WaitForAnotherStreamIsNone) {
  EXPECT_THAT(with_fault("wait_for_wrong_stream").out, HasSubstr("nan"));
  expect_value("wait_for_right_stream", "3");
}

TEST(PlantedFault, NativeDropoutIsAnError) {
  expect_error("native_dropout", "draws from the device's generator");
}

TEST(PlantedFault, FreshAndFreedMemoryIsNaN) {
  for (const char* fault : {"fresh_memory", "freed_memory"}) {
    EXPECT_THAT(with_fault(fault).out, HasSubstr("nan")) << fault;
  }
}

TEST(PlantedFault, MemoryIsLimited) {
  expect_error("too_much_memory", "out of memory");
  EXPECT_EQ(with_fault("too_much_memory", "10000000").out, "1\n");
}

}  // namespace
}  // namespace finetune::testing
