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

constexpr int64_t kAlignment = 16;  // values: what kernels read at once, and a line of the cache

std::vector<int64_t> sizes_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

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

}  // namespace

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
  std::vector<Tensor> flats;  // of each bucket, where gradients lie there
  Tensor staging;             // float32, for gradients that lie elsewhere
  Tensor sent;                // in the format that is sent, where that is another
  Trace trace;
  Clock::time_point start;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> gradients;  // told so far; a bucket's own are the thread's while it is sent
  std::vector<size_t> missing;    // of each bucket
  size_t done = 0;                // buckets of this update
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
  int64_t largest = 0;
  for (const BucketLayout::Bucket& bucket : layout_.buckets) {
    largest = std::max(largest, bucket.values);
    if (options.owns_memory) state_->flats.push_back(at::zeros({bucket.values}, at::kFloat));
  }
  // Taken now: where memory lacks later, the other processes wait for the buckets nevertheless.
  if (!options.owns_memory) state_->staging = at::zeros({largest}, at::kFloat);
  if (options.sent != SentFormat::kFloat32) {
    state_->sent = at::empty({largest}, type_of(options.sent));
  }
  state_->trace.buckets.resize(layout_.buckets.size());
  state_->gradients.resize(like.size());
  state_->missing.resize(layout_.buckets.size());
  state_->thread = std::thread([this] { run(); });
}

BucketSum::~BucketSum() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

std::vector<Tensor> BucketSum::memory() const {
  FT_CHECK(options_.owns_memory, "gradients lie elsewhere");
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
  state_->changed.notify_all();
}

void BucketSum::finish(const std::vector<Tensor>& gradients) {
  FT_CHECK(gradients.size() == layout_.bucket_of.size(), "every gradient");
  std::unique_lock lock(state_->mutex);
  state_->trace.finish = state_->now();
  for (size_t i = gradients.size(); i-- > 0;) {
    state_->tell(i, gradients[i], layout_.bucket_of[i]);
  }
  state_->changed.notify_all();
  state_->changed.wait(lock,
                       [&] { return state_->failure || state_->done == layout_.buckets.size(); });
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
      sum_bucket(bucket);
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

// What this thread and the others touch at once are different gradients.
void BucketSum::sum_bucket(size_t bucket) {
  const BucketLayout::Bucket& layout = layout_.buckets[bucket];
  const Tensor flat =
      options_.owns_memory ? state_->flats[bucket] : state_->staging.narrow(0, 0, layout.values);
  const auto for_each = [&](const auto& action) {
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      const Tensor& gradient = state_->gradients[layout.tensors[i]];
      const Tensor part = flat.narrow(0, layout.offsets[i], gradient.numel()).view_as(gradient);
      if (part.data_ptr() != gradient.data_ptr()) action(part, gradient);
    }
  };
  for_each([](const Tensor& part, const Tensor& gradient) { part.copy_(gradient); });
  if (options_.sent == SentFormat::kFloat32) {
    world_.sum(flat);
  } else {
    const auto processes = static_cast<double>(world_.size());
    const Tensor sent = state_->sent.narrow(0, 0, layout.values);
    sent.copy_(flat.div_(processes));
    world_.sum(sent);
    flat.copy_(sent).mul_(processes);
  }
  for_each([](const Tensor& part, const Tensor& gradient) { gradient.copy_(part); });
}

}  // namespace finetune
