// SPDX-License-Identifier: MIT
#include "finetune/distributed/bucket_sum.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr int64_t kAlignment = 16;  // values: the width of kernels' loads, and a cache line

std::vector<int64_t> sizes_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

}  // namespace

at::ScalarType type_of(SentFormat format) {
  switch (format) {
    case SentFormat::kFloat32:
      return at::kFloat;
    case SentFormat::kFloat16:
      return at::kHalf;
    case SentFormat::kBFloat16:
      return at::kBFloat16;
  }
  FT_CHECK(false, "a format that is none");
}

BucketLayout::BucketLayout(const std::vector<int64_t>& sizes, int64_t bucket_bytes)
    : bucket_of(sizes.size()) {
  const int64_t most = std::max<int64_t>(1, bucket_bytes / 4);
  for (size_t i = sizes.size(); i-- > 0;) {
    const int64_t values = (sizes[i] + kAlignment - 1) / kAlignment * kAlignment;
    if (buckets.empty() || buckets.back().values + values > most) buckets.emplace_back();
    Bucket& bucket = buckets.back();
    bucket.tensors.push_back(i);
    bucket.offsets.push_back(bucket.values);
    bucket.values += values;
    bucket_of[i] = buckets.size() - 1;
  }
}

struct BucketSum::State {
  std::vector<std::vector<int64_t>> shapes;
  // One for each bucket, or a single one if buckets are sent one by one: float32 memory of the
  // gradients or their copies, and the send buffer if that has another format.
  std::vector<Tensor> flats;
  std::vector<Tensor> sent;
  std::vector<std::unique_ptr<World::BegunSum>> sums;  // without a thread
  Trace trace;
  Clock::time_point start;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor>
      gradients;  // reported so far; the sender owns those of a bucket while it is sent
  std::vector<size_t> missing;  // by bucket
  size_t done = 0;              // completed buckets of this update; without a thread: started ones
  bool is_sending = false;
  std::exception_ptr failure;
  bool ends = false;
  std::thread thread;

  [[nodiscard]] double now() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  [[nodiscard]] bool may_send() const {
    return is_sending && !failure && done < missing.size() && missing[done] == 0;
  }
  void tell(size_t tensor, const Tensor& gradient, size_t bucket) {
    if (gradients[tensor].defined()) return;
    gradients[tensor] = gradient;
    if (--missing[bucket] == 0) trace.buckets[bucket].ready = now();
  }
};

BucketSum::BucketSum(World& world, const std::vector<Tensor>& like, const Options& options)
    : world_(world),
      options_(options),
      layout_(sizes_of(like), options.bucket_bytes),
      state_(std::make_unique<State>()) {
  for (const Tensor& tensor : like) state_->shapes.push_back(tensor.sizes().vec());
  const at::TensorOptions position =
      at::TensorOptions().device(options.has_thread ? c10::Device(c10::kCPU) : like[0].device());
  int64_t largest = 0;
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    largest = std::max(largest, bucket.values);
  }
  // Allocated now: if memory were insufficient later, the other ranks would wait for the buckets.
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    const bool is_only = options.has_thread && !options.owns_memory;
    if (is_only && !state_->flats.empty()) break;
    state_->flats.push_back(
        at::zeros({is_only ? largest : bucket.values}, position.dtype(at::kFloat)));
  }
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    if (options.sent == SentFormat::kFloat32) break;
    if (options.has_thread && !state_->sent.empty()) break;
    state_->sent.push_back(at::empty({options.has_thread ? largest : bucket.values},
                                     position.dtype(type_of(options.sent))));
  }
  state_->trace.buckets.resize(layout_.buckets.size());
  state_->gradients.resize(like.size());
  state_->missing.resize(layout_.buckets.size());
  if (options.has_thread) state_->thread = std::thread([this] { run(); });
}

BucketSum::~BucketSum() {
  if (!options_.has_thread) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

std::vector<Tensor> BucketSum::memory() const {
  FT_CHECK(options_.owns_memory, "the gradients are not in these buckets");
  std::vector<Tensor> views(layout_.bucket_of.size());
  for (size_t b = 0; b < layout_.buckets.size(); ++b) {
    const BucketLayout::Bucket& bucket = layout_.buckets[b];
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const std::vector<int64_t>& shape = state_->shapes[bucket.tensors[i]];
      views[bucket.tensors[i]] =
          state_->flats[b].narrow(0, bucket.offsets[i], c10::multiply_integers(shape)).view(shape);
    }
  }
  return views;
}

void BucketSum::begin() {
  const std::lock_guard lock(state_->mutex);
  FT_CHECK(!state_->is_sending, "an update that was not finished");
  state_->start = Clock::now();
  state_->done = 0;
  state_->is_sending = true;
  for (size_t b = 0; b < layout_.buckets.size(); ++b) {
    state_->missing[b] = layout_.buckets[b].tensors.size();
    state_->trace.buckets[b] = {.bytes = 4 * layout_.buckets[b].values};
  }
  std::fill(state_->gradients.begin(), state_->gradients.end(), Tensor());
}

void BucketSum::ready(size_t tensor, const Tensor& gradient) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->tell(tensor, gradient, layout_.bucket_of[tensor]);
    if (!state_->may_send()) return;
  }
  if (options_.has_thread) {
    state_->changed.notify_all();
  } else {
    begin_sums();
  }
}

void BucketSum::finish(const std::vector<Tensor>& gradients) {
  FT_CHECK(gradients.size() == layout_.bucket_of.size(), "every gradient");
  std::unique_lock lock(state_->mutex);
  state_->trace.finish = state_->now();
  for (size_t i = gradients.size(); i-- > 0;) {
    state_->tell(i, gradients[i], layout_.bucket_of[i]);
  }
  if (options_.has_thread) {
    state_->changed.notify_all();
    state_->changed.wait(lock,
                         [&] { return state_->failure || state_->done == layout_.buckets.size(); });
  } else {
    lock.unlock();
    begin_sums();
    end_sums();
    lock.lock();
  }
  state_->is_sending = false;
  state_->trace.end = state_->now();
  std::fill(state_->gradients.begin(), state_->gradients.end(), Tensor());
  if (state_->failure) std::rethrow_exception(state_->failure);
}

const BucketSum::Trace& BucketSum::trace() const { return state_->trace; }

void BucketSum::run() {
  const c10::NoGradGuard no_grad;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.ends || state.may_send(); });
    if (state.ends) return;
    const size_t bucket = state.done;
    state.trace.buckets[bucket].sent = state.now();
    lock.unlock();
    std::exception_ptr failure;
    try {
      pack(bucket);
      world_.sum(sent_of(bucket));
      unpack(bucket);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    state.trace.buckets[bucket].done = state.now();
    state.failure = failure;
    ++state.done;
    if (failure || state.done == state.missing.size()) state.changed.notify_all();
  }
}

// Used without a dedicated thread. After a failure nothing is started, because the other ranks exit
// too.
void BucketSum::begin_sums() {
  const c10::NoGradGuard no_grad;
  State& state = *state_;
  while (state.may_send()) {
    const size_t bucket = state.done;
    state.trace.buckets[bucket].sent = state.now();
    try {
      pack(bucket);
      state.sums.push_back(world_.begin_sum(sent_of(bucket)));
    } catch (...) {
      state.failure = std::current_exception();
    }
    ++state.done;
  }
}

void BucketSum::end_sums() {
  const c10::NoGradGuard no_grad;
  State& state = *state_;
  try {
    for (size_t bucket = 0; bucket < state.sums.size() && !state.failure; ++bucket) {
      state.sums[bucket]->wait();
      unpack(bucket);
      state.trace.buckets[bucket].done = state.now();
    }
  } catch (...) {
    state.failure = std::current_exception();
  }
  state.sums.clear();
}

Tensor BucketSum::sent_of(size_t bucket) const {
  const std::vector<Tensor>& list =
      options_.sent == SentFormat::kFloat32 ? state_->flats : state_->sent;
  return list[std::min(bucket, list.size() - 1)].narrow(0, 0, layout_.buckets[bucket].values);
}

// This thread and the others access different gradients concurrently.
void BucketSum::pack(size_t bucket) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const Tensor flat =
      state_->flats[std::min(bucket, state_->flats.size() - 1)].narrow(0, 0, layout.values);
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const Tensor& gradient = state_->gradients[layout.tensors[i]];
    const Tensor part = flat.narrow(0, layout.offsets[i], gradient.numel()).view_as(gradient);
    if (part.data_ptr() != gradient.data_ptr()) part.copy_(gradient);
  }
  if (options_.sent == SentFormat::kFloat32) return;
  sent_of(bucket).copy_(flat.div_(static_cast<double>(world_.size())));
}

void BucketSum::unpack(size_t bucket) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const Tensor flat =
      state_->flats[std::min(bucket, state_->flats.size() - 1)].narrow(0, 0, layout.values);
  if (options_.sent != SentFormat::kFloat32) {
    flat.copy_(sent_of(bucket)).mul_(static_cast<double>(world_.size()));
  }
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const Tensor& gradient = state_->gradients[layout.tensors[i]];
    const Tensor part = flat.narrow(0, layout.offsets[i], gradient.numel()).view_as(gradient);
    if (part.data_ptr() != gradient.data_ptr()) gradient.copy_(part);
  }
}

}  // namespace finetune
