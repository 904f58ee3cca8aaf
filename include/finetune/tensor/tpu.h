// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/tensor/device.h"

// Google's TPUs, through TorchTPU (the Python package torch_tpu, Apache-2.0). Its libraries
// register the kernels of a device, PrivateUse1, whose operators XLA compiles. They are opened only
// where there is a TPU; nothing of them is needed to compile or to start this program.
namespace finetune {

// The TPU chips on the PCI bus.
struct TpuHardware {
  std::string name;    // "TPU v5e"
  int64_t memory = 0;  // bytes of a chip's HBM
  int64_t chips = 0;
};
// Returns nullopt if there are no chips. `root`: the file system's root.
[[nodiscard]] std::optional<TpuHardware> tpu_hardware(const std::string& root);
// Those of this machine, looked for once.
[[nodiscard]] const std::optional<TpuHardware>& own_tpu_hardware();

// Whether there is a TPU to use: hardware, or a library that the user named (TPU_LIBRARY_PATH).
[[nodiscard]] bool has_tpu();
// Whether pick_device() takes it.
[[nodiscard]] bool takes_tpu(Accelerator wanted);

// Returns a note if the environment asks for a TPU that is not there, as with PyTorch/XLA and on
// Google's machines (PJRT_DEVICE, TPU_NAME, COLAB_TPU_ADDR); else "".
[[nodiscard]] std::string tpu_note();

// What of TorchTPU is installed with a torch.
struct TpuPackages {
  std::string torch_tpu;  // version, "0.2.0"; empty: not installed
  std::string libtpu;     // version; empty: not installed
  std::string library;    // path of the TPU's library: TPU_LIBRARY_PATH, or libtpu's; empty: none
  std::string glue;       // path of TorchTPU's library for this torch; empty: it has none
  std::string python;     // Python's own library, which TorchTPU's needs; empty: not found
};
// `folder`: the one that holds Python's packages, torch among them.
[[nodiscard]] TpuPackages tpu_packages(const std::string& folder);
// Those of the torch in use, looked for once.
[[nodiscard]] const TpuPackages& tpu_packages();

// Returns in one sentence what is missing or does not fit, with the command that repairs it; "" if
// nothing.
[[nodiscard]] std::string tpu_problem(const TpuPackages& packages);

// Lets TorchTPU keep compiled programs in a folder, from which a later session takes them; a folder
// that the user named stays (TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT). Call it before load_tpu().
void keep_tpu_programs(const std::string& folder);

// Opens TorchTPU; calls after the first do nothing. Throws Error(kConfig) with tpu_problem() or the
// loader's message. Call it before a device is used and before threads are started.
void load_tpu();

// Removes the programs that this process keeps in memory (/dev/shm). Call it before the process
// ends; after a kill the next load_tpu() does it.
void drop_tpu_memory_cache();

// The chips that processes may use: those on the bus, or what TPU_VISIBLE_CHIPS lists of them.
[[nodiscard]] int64_t tpu_chips();
// Lets this process see one of them alone, so that each of a machine's processes has a TPU of one
// chip. Call it before load_tpu(). Throws Error(kConfig) if there are fewer.
void take_tpu_chip(int64_t local_rank);

// Returns how many compiled programs TorchTPU has kept (keep_tpu_programs), of all sessions; 0 if
// it keeps none. Reads a folder.
[[nodiscard]] int64_t kept_tpu_programs();

// Whether this is a TPU, after load_tpu().
[[nodiscard]] bool is_tpu(const c10::Device& device);

// Returns "TPU v5e (tpu:0 of 1, 16 GiB, TorchTPU 0.2.0, libtpu 0.0.52)"; without hardware
// (TPU_LIBRARY_PATH names another backend of XLA) "TPU of libtpu.so (tpu:0 of 1, ...)".
[[nodiscard]] std::string describe_tpu(const c10::Device& device);
// Returns the bytes of a chip's HBM; 0 if unknown.
[[nodiscard]] int64_t tpu_memory();
// Returns "TPU v5e, 16 GiB, TorchTPU 0.2.0, libtpu 0.0.52" before anything is loaded.
[[nodiscard]] std::string tpu_summary();
// Returns "TorchTPU 0.2.0, libtpu 0.0.52": on them depend exact bits, besides the generation.
[[nodiscard]] std::string tpu_environment(const TpuPackages& packages);

}  // namespace finetune
