// SPDX-License-Identifier: MIT
// The keys of TrainingArguments and of the run_* scripts that nothing here reads: what each means
// there, and whether it is accepted without effect or refused. To add one, add a row: validation,
// help, schema, dump and documentation follow.
#include <utility>

#include "config/keys/words.h"
#include "finetune/config/fields.h"

namespace finetune {
namespace {

using UnsetText = std::optional<std::string>;
using UnsetFlag = std::optional<bool>;
using UnsetCount = std::optional<int64_t>;
using UnsetNumber = std::optional<double>;
using NoWords = std::vector<std::string>;

constexpr ResumePolicy kFree = ResumePolicy::kFree;
constexpr ResumePolicy kFixed = ResumePolicy::kFixed;

// The sections that the rows are shown in, after the keys that have an effect.
constexpr char kModel[] = "Model and task";
constexpr char kData[] = "Data";
constexpr char kBatches[] = "Batches";
constexpr char kDuration[] = "Duration and batch size";
constexpr char kOptimizer[] = "Optimizer and learning rate";
constexpr char kDevice[] = "Device and memory";
constexpr char kProcesses[] = "Processes";
constexpr char kLogging[] = "Logging";
constexpr char kEvaluation[] = "Evaluation and the best model";
constexpr char kCheckpoints[] = "Checkpoints and resuming";
constexpr char kHub[] = "Hugging Face Hub";

// Why a value is refused; reads on after "'key: value'".
constexpr std::string_view kNoDatasets = "is not possible: give the files with train_file";
constexpr std::string_view kNoHub =
    "is not available: nothing is sent to a hub or service (on_finish_command can do it)";
constexpr std::string_view kNoCompiler =
    "is not possible: torch.compile and its kernels exist in Python only";
constexpr std::string_view kNoSharding =
    "is not available: DeepSpeed and FSDP are Python libraries; zero_stage: 3 divides the model "
    "among processes here";

// Why a value has no effect; reads on after "has no effect here: ".
constexpr std::string_view kNoUpload = "nothing is uploaded";
constexpr std::string_view kOneSum =
    "gradients of all parameters are summed over all processes once per update";
constexpr std::string_view kThreads = "batches are made by threads";
constexpr std::string_view kPythonOnly = "it only concerns Python callbacks";
constexpr std::string_view kStreamed = "metrics are always computed batch by batch";

// accelerator_config as TrainingArguments.to_json_string() writes its default.
constexpr char kDefaultOfAccelerator[] =
    R"({"split_batches":false,"dispatch_batches":null,"even_batches":true,)"
    R"("use_seedable_sampler":true,"non_blocking":false,"gradient_accumulation_kwargs":null})";

// A value other than the default gets a note.
FieldSpec ignored(std::string_view reason, FieldSpec more = {}) {
  more.support = Support::kAccepted;
  more.reason = reason;
  return more;
}

// A value other than the default and `available` is an error.
FieldSpec refused(std::string_view reason, FieldSpec more = {}) {
  more.support = Support::kRefused;
  more.reason = reason;
  return more;
}

Field row(const char* section, const char* name, ForeignValue initial, const char* help,
          FieldSpec spec) {
  return {.name = name,
          .help = help,
          .section = section,
          .member = ForeignKey{std::move(initial)},
          .spec = std::move(spec)};
}

}  // namespace

std::vector<Field> foreign_fields() {
  return {
      // Model and task
      row(kModel, "use_fast_tokenizer", true, "Use the fast tokenizer.",
          ignored("there is one tokenizer, and it is fast")),
      row(kModel, "model_revision", std::string("main"),
          "Branch, tag or commit of a model that is given by name.",
          refused(kNotYet, {.resume = kFixed})),
      row(kModel, "token", UnsetText(), "Access token for the Hugging Face Hub.",
          ignored("nothing is fetched from the Hub by this program",
                  {.resume = kFree, .secret = true})),
      row(kModel, "trust_remote_code", false, "Run Python code that comes with a model.",
          refused("is not possible: no Python is ever run")),
      row(kModel, "low_cpu_mem_usage", false, "Load weights without a second copy in memory.",
          ignored("loading never makes a second copy")),
      row(kModel, "use_cache", false, "Keep keys and values of attention for generation.",
          ignored("training needs no cache, and `finetune predict` always uses one")),
      // Data
      row(kData, "dataset_name", UnsetText(), "Data set of the Hugging Face Hub.",
          refused(kNoDatasets)),
      row(kData, "dataset_config_name", UnsetText(),
          "Configuration of the data set of the Hugging Face Hub.", refused(kNoDatasets)),
      // Batches
      row(kBatches, "length_column_name", std::string("length"), "Column of a sample's length.",
          ignored("lengths are known from the tokens")),
      row(kBatches, "dataloader_pin_memory", true, "Keep batches in pinned memory.",
          ignored("batches are always copied to a GPU from pinned memory", {.resume = kFree})),
      row(kBatches, "dataloader_persistent_workers", false, "Keep the workers between epochs.",
          ignored(kThreads, {.resume = kFree})),
      row(kBatches, "dataloader_multiprocessing_context", UnsetText(),
          "Start method of worker processes.",
          ignored(kThreads, {.choices = {"fork", "spawn", "forkserver"}, .resume = kFree})),
      row(kBatches, "dataloader_in_order", true, "Return batches in the order of the samples.",
          ignored("batches always come in order, so that a resumed run is exact",
                  {.resume = kFree})),
      row(kBatches, "remove_unused_columns", true, "Drop columns that the model does not use.",
          ignored("columns that are not needed are never read")),
      row(kBatches, "label_names", NoWords(), "Names of the model's label inputs.",
          ignored(kPythonOnly)),
      // Duration and batch size
      row(kDuration, "auto_find_batch_size", false, "Reduce the batch size when memory runs out.",
          ignored("the micro-batch is always reduced after OOM, and the effective batch is kept")),
      // Optimizer and learning rate
      row(kOptimizer, "optim_target_modules", NoWords(), "Modules that GaLore and APOLLO update.",
          refused(kNotYet)),
      row(kOptimizer, "neftune_noise_alpha", UnsetNumber(), "Strength of the noise on embeddings.",
          refused(kNotYet)),
      // Device and memory
      row(kDevice, "torch_empty_cache_steps", UnsetCount(),
          "Free unused device memory every N steps.", refused(kNotYet, {.range = {.min = 1}})),
      row(kDevice, "torch_compile", false, "Compile the model.", refused(kNoCompiler)),
      row(kDevice, "torch_compile_backend", UnsetText(), "Back end of torch.compile.",
          refused(kNoCompiler)),
      row(kDevice, "torch_compile_mode", UnsetText(), "Mode of torch.compile.",
          refused(kNoCompiler)),
      row(kDevice, "use_liger_kernel", false, "Use Liger's kernels.", refused(kNoCompiler)),
      row(kDevice, "liger_kernel_config", JsonText(), "Options of Liger's kernels.",
          refused(kNoCompiler)),
      // Processes
      row(kProcesses, "ddp_find_unused_parameters", UnsetFlag(),
          "Search for parameters without a gradient.", ignored(kOneSum)),
      row(kProcesses, "ddp_broadcast_buffers", UnsetFlag(), "Send buffers to all processes.",
          ignored(kOneSum)),
      row(kProcesses, "ddp_static_graph", UnsetFlag(),
          "Assume that every step uses the same parameters.", ignored(kOneSum)),
      row(kProcesses, "accelerator_config", JsonText(), "Options of accelerate.",
          refused(kNotYet, {.spellings = {{kDefaultOfAccelerator, ""}}, .named = true})),
      row(kProcesses, "parallelism_config", JsonText(), "Division of a model among devices.",
          refused(kNotYet, {.named = true})),
      row(kProcesses, "fsdp", UnsetText(), "Fully sharded data parallel training.",
          refused(kNoSharding, {.available = {"false"}, .named = true})),
      row(kProcesses, "fsdp_config", JsonText(), "Options of fsdp.",
          refused(kNoSharding, {.available = {"false"}, .named = true})),
      row(kProcesses, "deepspeed", JsonText(), "Configuration of DeepSpeed.",
          refused(kNoSharding, {.available = {"false"}, .named = true})),
      // Logging
      row(kLogging, "logging_nan_inf_filter", true,
          "Leave non-finite losses out of the logged mean.",
          ignored("such losses are always counted and shown")),
      row(kLogging, "log_on_each_node", true, "Print on every machine.",
          ignored("the process with rank 0 prints", {.resume = kFree})),
      row(kLogging, "skip_memory_metrics", true, "Leave a memory report out of the metrics.",
          ignored("peak memory is always shown")),
      row(kLogging, "debug", std::string(), "Checks for debugging.",
          refused(kNotYet, {.spellings = {{"null", ""}, {"[]", ""}}})),
      row(kLogging, "trackio_space_id", UnsetText(), "Space for Trackio.",
          refused(kNoHub, {.resume = kFree})),
      row(kLogging, "trackio_bucket_id", UnsetText(), "Bucket for Trackio.",
          refused(kNoHub, {.resume = kFree})),
      row(kLogging, "trackio_static_space_id", UnsetText(), "Static space for Trackio.",
          refused(kNoHub, {.available = {"false"}, .resume = kFree})),
      // Evaluation and the best model
      row(kEvaluation, "eval_accumulation_steps", UnsetCount(),
          "Number of batches whose predictions stay on the device.",
          ignored(kStreamed, {.range = {.min = 1}})),
      row(kEvaluation, "batch_eval_metrics", false, "Compute metrics batch by batch.",
          ignored(kStreamed)),
      row(kEvaluation, "eval_do_concat_batches", true,
          "Concatenate the predictions of all batches.", ignored(kPythonOnly)),
      row(kEvaluation, "eval_use_gather_object", false, "Gather Python objects of all processes.",
          ignored(kPythonOnly)),
      row(kEvaluation, "include_for_metrics", NoWords(), "Inputs of compute_metrics.",
          ignored(kPythonOnly)),
      // Checkpoints and resuming
      row(kCheckpoints, "save_on_each_node", false, "Save on every machine.",
          ignored("the process with rank 0 saves")),
      row(kCheckpoints, "enable_jit_checkpoint", false, "Save on SIGTERM.",
          ignored("signals always save", {.resume = kFree})),
      row(kCheckpoints, "ignore_data_skip", false, "Resume at the start of the epoch.",
          refused("is not available: resuming at the exact sample takes no time here")),
      row(kCheckpoints, "restore_callback_states_from_checkpoint", false,
          "Restore the early-stopping counter.", ignored("it is always restored")),
      // Hugging Face Hub
      row(kHub, "push_to_hub", false, "Upload the model.", refused(kNoHub, {.resume = kFree})),
      row(kHub, "hub_token", UnsetText(), "Access token for uploading.",
          ignored(kNoUpload, {.resume = kFree, .secret = true})),
      row(kHub, "hub_private_repo", UnsetFlag(), "Make the repository private.",
          ignored(kNoUpload, {.resume = kFree})),
      row(kHub, "hub_model_id", UnsetText(), "Repository to upload to.",
          ignored(kNoUpload, {.resume = kFree})),
      row(kHub, "hub_strategy", std::string("every_save"), "When to upload.",
          ignored(kNoUpload, {.choices = {"end", "every_save", "checkpoint", "all_checkpoints"},
                              .resume = kFree})),
      row(kHub, "hub_always_push", false, "Upload even if the previous upload is still running.",
          ignored(kNoUpload, {.resume = kFree})),
      row(kHub, "hub_revision", UnsetText(), "Branch to upload to.",
          ignored(kNoUpload, {.resume = kFree})),
  };
}

}  // namespace finetune
