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
// Every member but rank(), size() and reaches() is a meeting: all processes call the same ones in
// the same order, and each waits for the others without a limit of time (what rank 0 does alone may
// take long; who is gone or hangs is noticed otherwise). Throws PeerLost where one of them is gone.
// One thread at a time.
//
// Tensors lie in host memory, or on the one device that connect() reached. There, they are seen as
// what the caller's current stream has been given leaves them, and what that stream is given next
// sees the result.
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
  // A flat tensor of a floating type, summed in place: the same bits everywhere, in an order that
  // depends on the number of processes.
  virtual void sum(const Tensor& values) = 0;
  // The same, beside the caller, who leaves the tensor alone until it is done; several at once are
  // done in the order in which they were begun.
  [[nodiscard]] virtual std::unique_ptr<BegunSum> begin_sum(const Tensor& values);
  // Flat float32 tensors: `input` is cut into what each process gets, `output` holds what each
  // gave, in the order of ranks; their sizes in values.
  virtual void all_to_all(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_sizes,
                          const std::vector<int64_t>& input_sizes) = 0;
  // `whole` gets the parts of all processes, of one size, in the order of ranks; of any type.
  virtual void all_gather(const Tensor& whole, const Tensor& part) = 0;

  // Joins the devices of all processes, so that tensors there need not go through host memory.
  // `device`: the one that this process computes on. Why they cannot be joined, the same text
  // everywhere; empty: they are.
  [[nodiscard]] virtual std::string connect(const c10::Device& device);
  // Whether the members above take tensors that lie there.
  [[nodiscard]] virtual bool reaches(const c10::Device& device) const;

  [[nodiscard]] bool is_first() const { return rank() == 0; }
  [[nodiscard]] bool any(bool value);  // whether it is true in one of them
  // What each of them has, in the order of ranks.
  [[nodiscard]] std::vector<std::string> gather(const std::string& bytes);
};

[[nodiscard]] std::unique_ptr<World> make_single_process_world();

}  // namespace finetune
