// SPDX-License-Identifier: MIT
#include "train/setup/memory_workload.h"

#include <ATen/DeviceAccelerator.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/memory_status.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/kernels/precision.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/gpu.h"
#include "train/setup/weights_hash.h"

namespace finetune {
namespace {

// Memory that the first step allocates and keeps for libraries, threads and buffers; measured.
constexpr int64_t kFirstStep = int64_t{3} << 20;
// That libraries generate for products in 16 bits, for each number of rows.
constexpr int64_t kCodeOf16Bits = int64_t{8} << 20;

// Returns the memory in use at the first step, without memory that only startup needed.
int64_t resting_memory() {
  release_startup_code();
  ::malloc_trim(0);
  return resident_memory();
}

DatasetExtent extent_of(const Dataset& data) {
  if (const auto known = data.extent()) return *known;
  DatasetExtent extent;
  for (int64_t i = 0; i < data.size(); ++i) {
    for (int64_t choice = 0; choice < data.choices_of(i); ++choice) {
      const Example example = data.get(i, choice);
      extent.longest = std::max(extent.longest, static_cast<int64_t>(example.input_ids.size()));
      extent.bytes += static_cast<int64_t>(
          example.input_ids.size_bytes() + example.labels.size_bytes() +
          example.attention_mask.size_bytes() + example.token_type_ids.size_bytes() +
          example.values.size_bytes() + sizeof(int64_t));
    }
  }
  return extent;
}

}  // namespace

int64_t processes_of(const TrainingArgs& args, const DataParts& parts) {
  if (parts.world && parts.world->size() > 1) return parts.world->size();
  const std::string& text = args.num_processes;
  int64_t count = 1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), count);
  return result.ec == std::errc() ? std::max<int64_t>(1, count) : 1;
}

int64_t bucket_bytes(const TrainingArgs& args) {
  constexpr int64_t kBucketMegabytes = 25;  // torch's DistributedDataParallel
  return args.ddp_bucket_cap_mb.value_or(kBucketMegabytes) * 1'000'000;
}

MemoryWorkload pass_workload(const TrainingArgs& args, const DataParts& parts) {
  constexpr int64_t kShortRow = 16;
  MemoryWorkload workload{
      .model = parts.model_config,
      .head = task_of(args.task).head(args),
      .freeze = args.freeze,
      .base = parts.base_format,
      .four_bits = parts.four_bits,
      .length = kShortRow,
      .predicted_share = task_of(args.task).learns_next_words ? 1.0 : args.mlm_probability,
      .compares_sequences = task_of(args.task).compares_sequences,
      .scores_in_chunks = task_of(args.task).learns_next_words,
      .eval_batch = parts.validation_data || parts.test_data ? args.per_device_eval_batch_size : 0,
      .is_device = !parts.device.is_cpu(),
      .workspace = product_workspace_bytes(parts.device),
      .threads = num_threads(),
      .processes = processes_of(args, parts)};
  workload.has_kernels = has_compiled_kernels(parts.device);
  workload.compiles = compiles_shapes(parts.device);
  workload.has_flash = attention_in_use(parts.device) != std::string_view("row");
  workload.has_tiles = has_tiled_attention(parts.device);
  workload.zero_stage = workload.processes > 1 ? args.zero_stage : 0;
  workload.bucket_bytes = bucket_bytes(args);
  workload.computes_reference = workload.compares_sequences && !args.precompute_ref_log_probs;
  workload.sums_shards = args.full_determinism && args.grad_accum_dtype == "float32";
  return workload;
}

MemoryWorkload workload_of(const TrainingArgs& args, const DataParts& parts,
                           int64_t effective_batch) {
  MemoryWorkload workload = pass_workload(args, parts);
  workload.effective_batch = effective_batch;
  int64_t longest = 1;
  for (const auto& data : {parts.train_data, parts.validation_data, parts.test_data}) {
    if (!data) continue;
    const DatasetExtent extent = extent_of(*data);
    longest = std::max(longest, extent.longest);
    workload.data += extent.bytes;
    workload.choices = std::max(workload.choices, data->choices());
  }
  if (args.pad_to_max_length && args.max_seq_length) {
    longest = std::max(longest, *args.max_seq_length);
  }
  workload.length = std::max(longest, parts.setup->packed_length());
  workload.start = static_cast<int64_t>(peak_memory_bytes(c10::Device(c10::kCPU)));
  // Code counts as a constant: how much of it is mapped depends on the kernel, not on the run.
  workload.program =
      std::max<int64_t>(0, resting_memory() - workload.data) + kMappedCode + kFirstStep;
  if (args.bf16 && parts.device.is_cpu() && has_fast_products(Precision::kBFloat16, at::kCPU)) {
    workload.program += kCodeOf16Bits;
  }
  for (const std::string& folder : parts.setup->guides()) {
    for (const std::string& path : weight_paths(folder)) {
      workload.program += static_cast<int64_t>(FileSystem::local().open(path)->size());
    }
  }
  return workload;
}

int64_t device_memory(c10::Device device) {
  if (device.is_cpu()) return attainable_memory();
  if (!features_of(device).statistics) return static_cast<int64_t>(total_memory(device));
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  return static_cast<int64_t>(free);
}

}  // namespace finetune
