// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "distributed/await_work.h"
#include "distributed/device_group.h"

namespace finetune {

// Functions of the binary that loads the module, which is linked with none of our libraries.
struct NcclHost {
  decltype(&finetune::await_work) await_work;
  void (*debug)(const std::string& message);
};

// The interface of libfinetune_nccl.so. Module and binary are compiled by the same compiler for the
// same minor version of torch, so that C++ objects can be passed between them.
struct NcclModule {
  std::string compiled_for;  // NCCL's major and minor version: c10d's options contain its structs
  std::string (*version)();  // the version of the NCCL that torch has loaded, "2.29.7"
  std::string (*position_of)(const c10::Device& device);
  std::unique_ptr<DeviceGroup> (*join)(c10::intrusive_ptr<c10d::Store> store,
                                       const DeviceGroupOptions& options);
};

// The module's only exported symbol, "finetune_nccl_module". The result lives as long as the
// process.
using NcclModuleEntry = const NcclModule*(const NcclHost* host);

}  // namespace finetune
