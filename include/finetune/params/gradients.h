// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "finetune/kernels/formats.h"
#include "finetune/params/parameter.h"

namespace finetune {

// The random numbers of stochastic rounding: a function of (seed, update, index in the effective
// batch, parameter, element).
struct RoundingStream {
  uint64_t seed = 0;
  int64_t update = 0;
  int64_t first_position = 0;
};

// The gradients of a store's trained parameters. Layers add to them directly: no autograd node
// keeps one, so each gradient exists once, in its own format. Additions to those of frozen
// parameters are ignored. Order of calls in each update: begin_micro_batch(), additions and
// complete(), clear(). One thread at a time, except with SeparateGradients.
class Gradients {
 public:
  // `parameters` must outlive this object and not move. `runs_ahead`: on a device on which every
  // launch costs time, so that additions wait for others.
  Gradients(std::vector<Parameter>& parameters, bool runs_ahead);
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Indices of the trained parameters, ascending.
  [[nodiscard]] const std::vector<size_t>& trained() const { return trained_; }
  // Reads again which parameters are trained. Requires: there is no gradient yet.
  void find_trained();

  // Sets the random numbers that round the sums of the next micro-batch. Only affects bfloat16
  // gradients.
  void begin_micro_batch(const RoundingStream& stream);

  // Adding to the gradient of `weight`; the first of an update creates it.
  // The gradient of `weight` [...] is [...], or partial sums [P, ...], whose sum over P is added at
  // the latest by add_pending(): with those of other parameters, in one launch.
  void add(const Weight& weight, const Tensor& gradient);
  // The gradient of `weight` [C] is the sum of rows [N, C], which must not change before
  // add_pending(): a device sums those of several parameters in one launch.
  void add_sum_of_rows(const Weight& weight, const Tensor& rows);
  // At the end of each backward pass.
  void add_pending();
  // += dy^T x for a weight [M, K] of a linear layer: dy [N, M], x [N, K], of any floating types.
  void add_product(const Weight& weight, const Tensor& dy, const Tensor& x);
  // The same for rows [first, first + M) of the weight, which are counted over all matrices of a
  // weight [E, M, K].
  void add_product_to_rows(const Weight& weight, int64_t first, const Tensor& dy, const Tensor& x);
  // weight.gradient[index] += row; indices [N] int64, rows [N, C] float32. Rows whose index is
  // `skipped` are ignored (padding of an embedding). Sums in the order of N, independent of the
  // number of threads.
  void add_to_indexed_rows(const Weight& weight, const Tensor& indices, const Tensor& rows,
                           int64_t skipped);
  // Declares that this backward pass adds nothing more to these gradients and reads these weights
  // no more: they may be updated.
  void complete(std::initializer_list<Weight> weights);

  // Sets the function that complete() calls once per weight; none by default (optimizer_in_backward
  // sets it).
  void on_complete(std::function<void(Parameter&)> listener) { listener_ = std::move(listener); }

  // Creates zero gradients for those of these parameters that have none yet in this update; frozen
  // ones get none.
  void open(const std::vector<size_t>& indices);
  // Allocates all gradients now, before the first activations. They live as long as the run and
  // would otherwise fragment the memory that every step allocates and frees.
  void reserve();
  // Frees the gradients; with `keep_memory`, keeps their memory for the next update.
  void clear(bool keep_memory);

 private:
  friend class SeparateGradients;

  [[nodiscard]] Parameter& at(const Weight& weight) {
    return parameters_[index_in(parameters_, weight)];
  }
  // Where the gradient is while this thread's micro-batch is computed.
  [[nodiscard]] Tensor& gradient_of(Parameter& parameter);
  // It, zeros where there was none.
  Tensor& open_gradient(Parameter& parameter);
  // Makes a product the gradient, which saves zeros and reading them; false, with nothing done,
  // where there is one already.
  [[nodiscard]] bool set_product(Parameter& parameter, const Tensor& left, const Tensor& right);
  [[nodiscard]] RoundingKey key_of_next_addition(const Parameter& parameter) const;
  [[nodiscard]] RoundingKey next_key(const Parameter& parameter);
  void add_partial(Parameter& parameter, const Tensor& parts);
  // Sums what add_sum_of_rows() was given.
  void sum_waiting_rows();
  void add_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                   const Tensor& values);
  // The same at the latest by add_pending(), with products of other parameters in one launch.
  void add_product_rounded(Parameter& parameter, const Tensor& target, int64_t first_element,
                           const Tensor& product);
  void add_rows_of_few(Parameter& parameter, const Tensor& target, const Tensor& indices,
                       const Tensor& rows);

  std::vector<Parameter>& parameters_;
  std::vector<size_t> trained_;
  bool rounds_ = false;        // for at least one parameter
  std::vector<Tensor> spare_;  // memory of gradients between updates
  bool runs_ahead_ = false;    // spare_ then holds zeros, made by one call

  // Additions that wait for add_pending().
  struct Pending {
    size_t index;   // of the parameter
    Tensor target;  // of a product: the rows of the gradient that it is added to
    Tensor values;  // partial sums, or the product
    RoundingKey key;
  };
  std::vector<Pending> pending_;   // partial sums
  std::vector<Pending> products_;  // to be rounded
  int64_t pending_bytes_ = 0;
  int64_t product_bytes_ = 0;
  struct WaitingRows {
    Weight weight;
    Tensor rows;
  };
  std::vector<WaitingRows> waiting_rows_;  // of one shape and type
  // Additions in this micro-batch by parameter: each rounds with other random numbers.
  std::vector<uint32_t> additions_;
  RoundingStream stream_;
  std::function<void(Parameter&)> listener_;
};

// While it lives, what the calling thread adds to `of` goes to `gradients` instead: one for each
// parameter, made by the first addition. So several threads can compute micro-batches of one model
// at the same time. On a device it is what any thread adds, because autograd's own thread runs the
// backward pass. Parameters complete without notice to the listener. Requires: float32 gradients;
// one of these a thread, on a device one in all.
class SeparateGradients {
 public:
  SeparateGradients(const Gradients& of, std::vector<Tensor>& gradients);
  ~SeparateGradients();
  SeparateGradients(const SeparateGradients&) = delete;
  SeparateGradients& operator=(const SeparateGradients&) = delete;

  // Returns the gradients that the calling thread adds to; nullptr: the parameters' own.
  [[nodiscard]] static std::vector<Tensor>* of(const Gradients& gradients);

 private:
  const Gradients& of_;
};

}  // namespace finetune
