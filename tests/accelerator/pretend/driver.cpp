// SPDX-License-Identifier: MIT
// The functions of CUDA's driver and libraries that the program looks up by name. They report a
// device if PRETEND_ACCELERATOR_CAPABILITY is set: "7.5 40" is compute capability 7.5 with 40
// multiprocessors.
#include <cstdio>
#include <cstdlib>

namespace pretend {
namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

struct Capability {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
};

bool find_capability(Capability& device) {
  const char* const text = std::getenv("PRETEND_ACCELERATOR_CAPABILITY");
  return text != nullptr &&
         std::sscanf(text, "%d.%d %d", &device.major, &device.minor, &device.multiprocessors) == 3;
}

}  // namespace
}  // namespace pretend

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuDeviceGet(int* handle, int index) {
  pretend::Capability device;
  *handle = index;
  return pretend::find_capability(device) ? 0 : pretend::kNoDevice;
}

EXPORTED int cuDeviceGetName(char* name, int bytes, int /*handle*/) {
  return std::snprintf(name, static_cast<size_t>(bytes), "pretend GPU") > 0 ? 0
                                                                            : pretend::kNoDevice;
}

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int /*handle*/) {
  pretend::Capability device;
  if (!pretend::find_capability(device)) return pretend::kNoDevice;
  switch (attribute) {
    case 16:
      *value = device.multiprocessors;
      return 0;
    case 75:
      *value = device.major;
      return 0;
    case 76:
      *value = device.minor;
      return 0;
    default:
      return 1;  // CUDA_ERROR_INVALID_VALUE
  }
}

EXPORTED int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}

EXPORTED int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
