// SPDX-License-Identifier: MIT
// How the trainer sums gradients over processes: buckets beside the backward pass, or, with
// full_determinism, logical shards behind it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <iomanip>
#include <numeric>
#include <sstream>

#include "finetune/base/log.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/kernels/separate_gradients.h"
#include "finetune/tensor/device.h"
#include "train/trainer.h"

namespace finetune {
namespace {

constexpr int64_t kBucketMegabytes = 25;  // torch's DistributedDataParallel

// Gradients of all parameters; where there is none, zeros from here on.
std::vector<Tensor> open_gradients(ParameterStore& store) {
  std::vector<size_t> all(store.parameters().size());
  std::iota(all.begin(), all.end(), size_t{0});
  store.open(all);
  std::vector<Tensor> gradients;
  for (const Parameter& parameter : store.parameters()) gradients.push_back(parameter.gradient);
  return gradients;
}

}  // namespace

int64_t Trainer::bucket_bytes() const {
  return args_.ddp_bucket_cap_mb.value_or(kBucketMegabytes) * 1'000'000;
}

ShardSum Trainer::make_shard_sum() const {
  const int64_t samples = samples_of_update(state_.position).samples;
  const int64_t shards = (samples + split_.rows - 1) / split_.rows;
  std::vector<ShardRange> shares;
  for (int64_t rank = 0; rank < parts_.world->size(); ++rank) {
    const int64_t first = std::min(shards, rank * split_.accumulation);
    shares.push_back({.first = first, .count = std::min(shards - first, split_.accumulation)});
  }
  return {*parts_.world, shards, std::move(shares)};
}

// Their sum begins in the backward pass of the last micro-batch. What has no float32 where it is
// summed is brought there by the sum itself.
void Trainer::make_buckets() {
  if (parts_.world->size() == 1 || has_shards() || buckets_) return;
  ParameterStore& store = parts_.model->store();
  const bool is_reached = parts_.world->reaches(parts_.device);
  const bool owns_memory = store.gradient_format() == GradientFormat::kFloat32 && is_reached;
  const SentFormat sent = args_.ddp_comm_hook == "fp16"   ? SentFormat::kFloat16
                          : args_.ddp_comm_hook == "bf16" ? SentFormat::kBFloat16
                                                          : SentFormat::kFloat32;
  std::vector<Tensor> like;
  for (const Parameter& parameter : store.parameters()) like.push_back(parameter.weight);
  buckets_ = std::make_unique<BucketSum>(
      *parts_.world, like,
      BucketSum::Options{.bucket_bytes = bucket_bytes(),
                         .sent = sent,
                         .owns_memory = owns_memory,
                         .has_thread = parts_.device.is_cpu() || !is_reached});
  if (!owns_memory) store.reserve_gradients();
  store.on_complete([this, &store](Parameter& parameter) {
    if (!is_last_micro_batch_) return;
    buckets_->ready(static_cast<size_t>(&parameter - store.parameters().data()),
                    parameter.gradient);
  });
}

// The store gets the buckets' memory back where a parameter had no gradient in the update before.
void Trainer::begin_buckets() {
  ParameterStore& store = parts_.model->store();
  if (buckets_->owns_memory()) {
    const std::vector<Tensor> memory = buckets_->memory();
    for (size_t i = 0; i < memory.size(); ++i) store.parameters()[i].gradient = memory[i];
    store.clear_gradients(/*keep_memory=*/true);
  }
  buckets_->begin();
}

// Also where this process stopped or has no memory: the others wait for its buckets, and learn of
// it behind them.
void Trainer::sum_buckets() {
  ParameterStore& store = parts_.model->store();
  for (size_t place = 0; place < has_gradient_.size(); ++place) {
    has_gradient_[place] = store.parameters()[place].gradient.defined() ? 1.0 : 0.0;
  }
  buckets_->finish(open_gradients(store));
  trace_buckets();
}

void Trainer::trace_buckets() const {
  if (!parts_.world->is_first() || !log::is_enabled(log::Level::kDebug)) return;
  const BucketSum::Trace& trace = buckets_->trace();
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "step " << state_.step + 1
       << ": gradients of all processes, ms since the update began: backward pass over at "
       << trace.finish << ", all summed at " << trace.end << "; buckets (MB: ready, sent, done):";
  const char* separator = " ";
  for (const BucketSum::Moments& bucket : trace.buckets) {
    text << separator << static_cast<double>(bucket.bytes) / 1e6 << ": " << bucket.ready << ", "
         << bucket.sent << ", " << bucket.done;
    separator = "; ";
  }
  log::debug(text.str());
}

void Trainer::add_shards(std::span<const Batch> batches, const std::vector<double>& scales,
                         std::span<double> losses) {
  std::vector<std::vector<Tensor>> gradients(batches.size());
  const auto compute = [&](int64_t i) {
    const auto place = static_cast<size_t>(i);
    const SeparateGradients separate(parts_.model->store(), gradients[place]);
    losses[place] = add_gradients(batches[place], scales);
  };
  const auto count = static_cast<int64_t>(batches.size());
  if (is_one_threaded()) {
    compute_side_by_side(count, compute);
  } else {
    for (int64_t i = 0; i < count; ++i) compute(i);
  }
  for (std::vector<Tensor>& of_shard : gradients) take_shard(std::move(of_shard));
}

// What a shard has no gradient for counts as zeros.
void Trainer::take_shard(std::vector<Tensor> gradients) {
  const std::vector<Parameter>& parameters = parts_.model->store().parameters();
  for (size_t place = 0; place < has_gradient_.size(); ++place) {
    if (gradients[place].defined()) {
      has_gradient_[place] = 1.0;
    } else {
      gradients[place] = at::zeros_like(parameters[place].weight.detach(), at::kFloat);
    }
  }
  shards_->add(std::move(gradients));
}

// What no process has a gradient for has none.
void Trainer::drop_empty_gradients() {
  std::vector<Parameter>& parameters = parts_.model->store().parameters();
  for (size_t i = 0; i < has_gradient_.size(); ++i) {
    if (has_gradient_[i] == 0.0) parameters[i].gradient = Tensor();
  }
}

void Trainer::sum_shards() {
  shards_->finish(open_gradients(parts_.model->store()), bucket_bytes());
  drop_empty_gradients();
  shards_.reset();
}

// Nobody expects that more threads do not help.
void Trainer::say_idle_threads() const {
  const int64_t threads = num_threads();
  if (!is_one_threaded() || split_.accumulation >= threads) return;
  log::info("full_determinism: one thread computes each micro-batch, so " +
            std::to_string(split_.accumulation) + " of " + std::to_string(threads) +
            " threads compute in each process; lower per_device_train_batch_size and raise "
            "gradient_accumulation_steps to use more");
}

}  // namespace finetune
