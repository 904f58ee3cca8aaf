// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "data/columns/row_source.h"
#include "finetune/base/error.h"
#include "finetune/base/thread_pool.h"

namespace finetune {

// Blocks of rows, encoded by `encode` on threads ahead of the caller. They come in the order of the
// files, for any number of threads. An error of the reader is thrown after the blocks of the rows
// before it.
template <class Encoded>
class BlockStream {
 public:
  BlockStream(RowSource& source, std::function<Encoded(const RowBlock&)> encode, int64_t threads)
      : source_(source),
        encode_(std::move(encode)),
        ahead_(threads > 1 ? 2 * static_cast<size_t>(threads) : 1),
        pool_(threads > 1 ? threads : 0) {}

  [[nodiscard]] bool next(Encoded& block) {
    while (!ended_ && planned_.size() < ahead_) plan();
    if (planned_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return false;
    }
    std::future<Encoded> first = std::move(planned_.front());
    planned_.pop_front();
    block = first.get();
    return true;
  }

 private:
  void plan() {
    auto rows = std::make_shared<RowBlock>();
    try {
      ended_ = !source_.next(*rows);
    } catch (const Error&) {
      failure_ = std::current_exception();
      ended_ = true;
    }
    if (ended_) return;
    planned_.push_back(pool_.submit([this, rows] { return encode_(*rows); }));
  }

  RowSource& source_;
  std::function<Encoded(const RowBlock&)> encode_;
  size_t ahead_;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::deque<std::future<Encoded>> planned_;
  ThreadPool pool_;  // last: its threads end before the members they use
};

}  // namespace finetune
