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

// The processes that train together. A world of one is the default object, not a special case.
//
// Every member except rank(), size() and reaches() is a collective: all ranks call the same ones in
// the same order, and each waits for the others without a time limit (rank 0's own work may take
// long; dead and hung ranks are detected by heartbeats). Throws PeerLost if a rank is dead. One
// thread at a time.
//
// Tensors are in host memory, or on the device that connect() reached. There, the collective runs
// after the work queued on the caller's current stream, and work queued later sees the result.
class World {
 public:
  // A sum that was begun. Destroying it waits for nothing.
  class BegunSum {
   public:
    virtual ~BegunSum() = default;
    // Until it is done.
    virtual void wait() = 0;
  };

  virtual ~World() = default;
  [[nodiscard]] virtual int64_t rank() const = 0;
  [[nodiscard]] virtual int64_t size() const = 0;

  // Sums of all processes, everywhere the same bits. Exact where at most one process has another
  // number than 0.
  virtual void sum(std::span<double> values) = 0;
  virtual void sum(std::span<int64_t> values) = 0;
  // What rank 0 has, everywhere.
  [[nodiscard]] virtual std::string broadcast(const std::string& text) = 0;
  // What one of them has, everywhere: a contiguous tensor of any type.
  virtual void broadcast(const Tensor& values, int64_t from) = 0;
  // Sums a flat tensor of a floating type in place: the same bits on every rank, in an order that
  // depends on the number of ranks.
  virtual void sum(const Tensor& values) = 0;
  // The same, asynchronously; the caller must not touch the tensor until it is done. Several run in
  // the order in which they were started.
  [[nodiscard]] virtual std::unique_ptr<BegunSum> begin_sum(const Tensor& values);
  // All-to-all of flat float32 tensors: `input` is split into the part for each rank, `output`
  // receives the part from each rank, in rank order; sizes in values.
  virtual void all_to_all(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_sizes,
                          const std::vector<int64_t>& input_sizes) = 0;
  // All-gather: `whole` receives the parts of all ranks, of equal size, in rank order; any type.
  virtual void all_gather(const Tensor& whole, const Tensor& part) = 0;

  // Joins the devices of all processes, so that tensors there need not go through host memory.
  // `device`: the one that this process computes on. Why they cannot be joined, the same text
  // everywhere; empty: they are.
  [[nodiscard]] virtual std::string connect(const c10::Device& device);
  // Whether the members above accept tensors of that device.
  [[nodiscard]] virtual bool reaches(const c10::Device& device) const;

  [[nodiscard]] bool is_first() const { return rank() == 0; }
  [[nodiscard]] bool any(bool value);  // whether it is true in one of them
  // What each of them has, in the order of ranks.
  [[nodiscard]] std::vector<std::string> gather(const std::string& bytes);
};

[[nodiscard]] std::unique_ptr<World> make_single_process_world();

}  // namespace finetune
