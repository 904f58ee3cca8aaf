// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// The processes (ranks) that train together. A single process has a World of size 1.
//
// Every member except rank(), size() and reaches() is a collective: all ranks call the same ones in
// the same order, and each waits for the others without a time limit (rank 0 may work long on its
// own; dead and hung ranks are detected by heartbeats). Throws PeerLost if a rank is dead. One
// thread at a time.
//
// Tensors are in host memory or on the device joined by connect(). On the device, a collective runs
// after the work queued on the caller's current stream, and work queued later sees the result.
class World {
 public:
  // A sum in progress. Destroying it does not wait.
  class BegunSum {
   public:
    virtual ~BegunSum() = default;
    // Waits until the sum is complete.
    virtual void wait() = 0;
  };

  virtual ~World() = default;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;

  // Sums over all ranks, with the same bits on every rank. Exact if at most one rank has a value
  // other than 0.
  virtual void sum(std::span<double> values) = 0;
  virtual void sum(std::span<int64_t> values) = 0;
  // Returns rank 0's text on every rank.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) = 0;
  // Copies the tensor of rank `from` to every rank: contiguous, of any type.
  virtual void broadcast(const Tensor& values, int64_t from) = 0;
  // Sums a flat tensor of a floating type in place: the same bits on every rank, in an order that
  // depends on the number of ranks.
  virtual void sum(const Tensor& values) = 0;
  // The same, asynchronously; the caller must not touch the tensor until the sum is complete. Sums
  // run in the order in which they were started.
  [[nodiscard]] virtual std::unique_ptr<BegunSum> begin_sum(const Tensor& values);
  // All-to-all of flat tensors of float32 or bytes: `input` is split into one part per rank,
  // `output` receives one part from each rank, in rank order; sizes in values.
  virtual void all_to_all(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_sizes,
                          const std::vector<int64_t>& input_sizes) = 0;
  // All-gather: `whole` receives the parts of all ranks, of equal size, in rank order; any type.
  virtual void all_gather(const Tensor& whole, const Tensor& part) = 0;

  // Connects the devices of all ranks, so that tensors there need not go through host memory.
  // `device`: the one that this rank computes on. Returns an empty string, or why they cannot be
  // connected, with the same text on every rank.
  [[nodiscard]] virtual std::string connect(const c10::Device& device);
  // Whether the collectives accept tensors of that device.
  [[nodiscard]] virtual bool reaches(const c10::Device& device) const;

  [[nodiscard]] bool is_first() const { return rank() == 0; }
  [[nodiscard]] bool any(bool value);  // whether any rank passes true
  // Returns the bytes of every rank, in rank order.
  [[nodiscard]] std::vector<std::string> gather(const std::string& bytes);
};

[[nodiscard]] std::unique_ptr<World> make_single_process_world();

}  // namespace finetune
