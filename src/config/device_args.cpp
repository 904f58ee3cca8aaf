// SPDX-License-Identifier: MIT
#include "finetune/config/device_args.h"

#include "config/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void DeviceArgs::describe(FieldList& field) {
  field.section("Device and memory");
  field("use_cpu", &DeviceArgs::use_cpu, "Train on the CPU even where an accelerator is there.");
  field("bf16", &DeviceArgs::bf16,
        "Compute in bfloat16 where that is safe; weights keep the format of param_dtype.");
  field("fp16", &DeviceArgs::fp16, "Compute in float16 with loss scaling where that is safe.");
  field("bf16_full_eval", &DeviceArgs::bf16_full_eval, "Evaluate in bfloat16.");
  field("fp16_full_eval", &DeviceArgs::fp16_full_eval, "Evaluate in float16.");
  field(
      "tf32", &DeviceArgs::tf32,
      "Multiply float32 matrices in TensorFloat-32: faster and less exact; needs an NVIDIA GPU of "
      "compute capability 8.0 or newer.");
  field("param_dtype", &DeviceArgs::param_dtype,
        "Format that weights are kept in: bfloat16 is rounded stochastically, bfloat16+int8 has an "
        "additional correction of 8 bits.",
        {.choices = {"float32", "bfloat16", "bfloat16+int8"}});
  field("grad_accum_dtype", &DeviceArgs::grad_accum_dtype,
        "Format that gradients are kept and summed in; bfloat16 is rounded stochastically.",
        {.choices = {"float32", "bfloat16"}});
  field("activation_checkpointing", &DeviceArgs::activation_checkpointing,
        "Compute activations again in the backward pass instead of keeping them.");
  field("activation_checkpointing_kwargs", &DeviceArgs::activation_checkpointing_kwargs,
        "Arguments of activation_checkpointing, as a mapping: every_n_layers, offload (to host "
        "memory), selective (keep matrix products, compute all else again).");
  field("gradient_checkpointing", &DeviceArgs::gradient_checkpointing,
        "Old name of activation_checkpointing.");
  field("gradient_checkpointing_kwargs", &DeviceArgs::gradient_checkpointing_kwargs,
        "Old name of activation_checkpointing_kwargs.");
  field("memory_budget", &DeviceArgs::memory_budget,
        "Peak memory to stay under, such as 1000MiB or 12GB; micro-batch size, recomputation and "
        "formats follow from it, unless set. On the CPU: anonymous and shared memory (RssAnon + "
        "RssShmem) plus 40 MiB of code; the system reclaims further mapped file pages at need.");
}

void DistributedArgs::describe(FieldList& field) {
  field.section("Processes");
  field("num_processes", &DistributedArgs::num_processes,
        "Processes on this machine, or \"auto\": one for each accelerator; torchrun, Slurm or an "
        "Indexed Job start theirs themselves.",
        {.resume = ResumePolicy::kFree});
  field("zero_stage", &DistributedArgs::zero_stage,
        "What is divided among processes: 0 nothing, 1 the optimizer's states.",
        {.range = {.min = 0, .max = 3},
         .support = Support::kRefused,
         .available = {"0", "1"},
         .reason = kNotYet,
         .resume = ResumePolicy::kFree});
  field("local_rank", &DistributedArgs::local_rank,
        "Place of this process on its machine; what started it says so itself.",
        {.resume = ResumePolicy::kFree});
  field("ddp_backend", &DistributedArgs::ddp_backend,
        "How processes sum gradients: unset, over NCCL if each computes on a different NVIDIA GPU, "
        "otherwise over Gloo; gloo, always over Gloo.",
        {.choices = {"nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"}});
  field("ddp_timeout", &DistributedArgs::ddp_timeout,
        "Seconds that processes wait for each other at the start, and over NCCL in an update, and "
        "after which an idle one is treated as hung.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFree});
  field("ddp_bucket_cap_mb", &DistributedArgs::ddp_bucket_cap_mb,
        "Megabytes of gradients that are summed at a time; unset: 25.", {.range = {.min = 1}});
  field("ddp_comm_hook", &DistributedArgs::ddp_comm_hook,
        "Format that gradients are sent in while processes sum them; fp16 and bf16 halve what is "
        "sent.",
        {.choices = {"no", "fp16", "bf16"}});
}

}  // namespace finetune
