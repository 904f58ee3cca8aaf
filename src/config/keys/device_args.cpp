// SPDX-License-Identifier: MIT
#include "finetune/config/device_args.h"

#include "config/keys/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void DeviceArgs::describe(FieldList& field) {
  field.section("Device and memory");
  field("accelerator", &DeviceArgs::accelerator,
        "Device that computes; auto: a TPU where there is one, else a GPU, else the CPU.",
        {.choices = {"auto", "cpu", "cuda", "tpu"}});
  field("use_cpu", &DeviceArgs::use_cpu,
        "Train on the CPU even if there is an accelerator; Trainer's key for accelerator: cpu.");
  field("bf16", &DeviceArgs::bf16,
        "Compute in bfloat16 where that is safe; weights are stored as param_dtype says.",
        {.spellings = {{"auto", "false"}}});
  field("fp16", &DeviceArgs::fp16, "Compute in float16 with loss scaling where that is safe.",
        {.spellings = {{"auto", "false"}}});
  field("bf16_full_eval", &DeviceArgs::bf16_full_eval, "Evaluate in bfloat16.");
  field("fp16_full_eval", &DeviceArgs::fp16_full_eval, "Evaluate in float16.");
  field(
      "tf32", &DeviceArgs::tf32,
      "Multiply float32 matrices in TensorFloat-32: faster and less exact; needs an NVIDIA GPU of "
      "compute capability 8.0 or newer.");
  field("param_dtype", &DeviceArgs::param_dtype,
        "Number format of stored weights: bfloat16 is rounded stochastically; bfloat16+int8 adds a "
        "correction of 8 bits.",
        {.choices = {"float32", "bfloat16", "bfloat16+int8"}});
  field("grad_accum_dtype", &DeviceArgs::grad_accum_dtype,
        "Number format of gradients and their sums; bfloat16 is rounded stochastically.",
        {.choices = {"float32", "bfloat16"}});
  field("activation_checkpointing", &DeviceArgs::activation_checkpointing,
        "Recompute activations in the backward pass instead of keeping them.");
  field("activation_checkpointing_kwargs", &DeviceArgs::activation_checkpointing_kwargs,
        "Options of activation_checkpointing, as a mapping: every_n_layers, offload (to host "
        "memory), selective (keep matrix products, recompute everything else).");
  field("gradient_checkpointing", &DeviceArgs::gradient_checkpointing,
        "Old name of activation_checkpointing.");
  field("gradient_checkpointing_kwargs", &DeviceArgs::gradient_checkpointing_kwargs,
        "Old name of activation_checkpointing_kwargs.");
  field("memory_budget", &DeviceArgs::memory_budget,
        "Maximum peak memory, such as 1000MiB or 12GB; micro-batch size, recomputation and formats "
        "follow from it, unless set. On the CPU: anonymous and shared memory (RssAnon + RssShmem) "
        "plus 40 MiB of code; the system reclaims other mapped file pages when it needs memory.");
}

void DistributedArgs::describe(FieldList& field) {
  field.section("Processes");
  field("num_processes", &DistributedArgs::num_processes,
        "Number of processes on this machine, or \"auto\": one for each accelerator; torchrun, "
        "Slurm and Indexed Jobs start their own.",
        {.resume = ResumePolicy::kFree});
  field("zero_stage", &DistributedArgs::zero_stage,
        "State that is divided among processes: 0 none, 1 the optimizer's, 2 gradients as well, 3 "
        "weights as well.",
        {.range = {.min = 0, .max = 3}, .resume = ResumePolicy::kFree});
  field("local_rank", &DistributedArgs::local_rank,
        "Index of this process on its machine; the launcher sets it.",
        {.resume = ResumePolicy::kFree});
  field("ddp_backend", &DistributedArgs::ddp_backend,
        "Library that sums gradients of several processes; unset: NCCL if each process has its own "
        "NVIDIA GPU, otherwise Gloo; gloo: always Gloo.",
        {.choices = {"nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"}});
  field("ddp_timeout", &DistributedArgs::ddp_timeout,
        "Seconds that ranks wait for each other at startup, and in an update over NCCL; a rank "
        "without activity for that long is treated as hung.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFree});
  field("ddp_bucket_cap_mb", &DistributedArgs::ddp_bucket_cap_mb,
        "Size in megabytes of the buckets in which gradients are summed; unset: 25.",
        {.range = {.min = 1}});
  field("ddp_comm_hook", &DistributedArgs::ddp_comm_hook,
        "Number format in which processes send gradients; fp16 and bf16 halve the traffic.",
        {.choices = {"no", "fp16", "bf16"}});
}

}  // namespace finetune
