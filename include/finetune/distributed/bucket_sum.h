// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "finetune/distributed/world.h"

namespace finetune {

// The format in which gradients are sent. With two bytes per value, a rank sends its gradients
// already divided by the number of ranks, so that the sum does not overflow.
enum class SentFormat { kFloat32, kFloat16, kBFloat16 };
[[nodiscard]] at::ScalarType type_of(SentFormat format);

// Assignment of tensors to buckets, in reverse order, in which a backward pass completes them; each
// starts at an aligned offset. Depends only on the tensors' sizes.
struct BucketLayout {
  struct Bucket {
    std::vector<size_t> tensors;   // descending
    std::vector<int64_t> offsets;  // in values
    int64_t values = 0;            // including alignment
  };

  // Each bucket has at least one tensor; a bucket of several stays below `bucket_bytes`.
  BucketLayout(const std::vector<int64_t>& sizes, int64_t bucket_bytes);

  std::vector<Bucket> buckets;
  std::vector<size_t> bucket_of;  // by tensor
};

// Sums gradients over all ranks, in place, concurrently with the backward pass that computes them:
// a bucket is sent when it is complete and the buckets before it are sent. The bits are those of a
// sum after the backward pass. If the world reaches the gradients' device, the thread that reports
// a bucket's last gradient enqueues its sum on the device, and nothing waits before finish();
// otherwise a dedicated thread sends buckets through host memory, one by one.
//
// An update is begin(), any number of ready(), finish(): every rank must reach each finish(),
// because the others wait for its buckets.
class BucketSum {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    int64_t bucket_bytes = 25'000'000;
    SentFormat sent = SentFormat::kFloat32;
    bool owns_memory = true;  // gradients are views of memory(), in float32
    // False: the world's sums are asynchronous by themselves, as on a device.
    bool has_thread = true;
  };
  // Timestamps in milliseconds since begin().
  struct Moments {
    int64_t bytes = 0;
    double ready = 0.0;
    double sent = 0.0;
    double done = 0.0;  // without a thread: when finish() noticed it
  };
  struct Trace {
    std::vector<Moments> buckets = {};
    double finish = 0.0;  // the call of finish(), i.e. the end of the backward pass
    double end = 0.0;
  };

  // `like`: tensors of the gradients' shapes; with a thread, buckets are in host memory, otherwise
  // on their device.
  BucketSum(World& world, const std::vector<Tensor>& like, const Options& options);
  ~BucketSum();  // waits for the bucket that its thread is sending
  BucketSum(const BucketSum&) = delete;
  BucketSum& operator=(const BucketSum&) = delete;

  [[nodiscard]] bool owns_memory() const { return options_.owns_memory; }
  // Returns the buckets' memory as gradients, which saves a copy. Requires: Options::owns_memory.
  [[nodiscard]] std::vector<Tensor> memory() const;

  void begin();
  // Reports that this gradient is final for this update. Called from one thread at a time.
  void ready(size_t tensor, const Tensor& gradient);
  // Takes all gradients, including those already reported, and replaces them by their sums. Throws
  // PeerLost.
  void finish(const std::vector<Tensor>& gradients);

  // Returns the trace of the last update.
  [[nodiscard]] const Trace& trace() const;

 private:
  struct State;
  void run();
  [[nodiscard]] Tensor sent_of(size_t bucket) const;
  void pack(size_t bucket);
  void unpack(size_t bucket);
  void begin_sums();
  void end_sums();

  World& world_;
  Options options_;
  BucketLayout layout_;
  std::unique_ptr<State> state_;
};

}  // namespace finetune
