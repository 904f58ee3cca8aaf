// SPDX-License-Identifier: MIT
#include "finetune/state/state_gather.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {

namespace {

constexpr int64_t kMessageBytes = int64_t{8} << 20;

}  // namespace

// A request of rank 0's writer for bytes of one tensor.
struct StateGather::Request {
  enum What : int64_t { kState, kWeight, kCorrection };

  int64_t index = -1;  // of the slot, or of the parameter; -1: no more requests
  int64_t what = kState;
  int64_t state = 0;  // of the slot's tensors
  int64_t owner = 0;
  int64_t first = 0;  // byte of the owner's tensor
  int64_t bytes = 0;
};

// Hands requests from the writer's thread to the thread that serves them.
struct StateGather::Desk {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Request> request;
  std::optional<Tensor> answer;
  bool is_closed = false;  // no further answers
};

StateGather::StateGather(World& world, const Optimizer& optimizer, std::vector<int64_t> owners)
    : world_(world),
      optimizer_(optimizer),
      owners_(std::move(owners)),
      desk_(std::make_unique<Desk>()) {}

StateGather::~StateGather() = default;

LazyTensors StateGather::tensors(size_t slot) {
  Optimizer::Slot like = optimizer_.slots().at(slot);
  const Parameter& parameter = optimizer_.parameters().parameters()[like.parameter];
  FT_CHECK(like.is_elsewhere || parameter.is_divided(), "a state that lies here");
  const OptimizerOptions& options = optimizer_.options_of(like);
  create_whole_state(options, parameter, like, c10::Device(c10::kMeta));
  const std::vector<StateTensor> kinds =
      optimizer_.kind_of(like).state(parameter.handle.sizes(), like.is_8bit, options);
  LazyTensors list;
  for (size_t i = 0; i < like.state.size(); ++i) {
    const auto& [name, values] = like.state[i];
    if (kinds[i].table.defined()) {
      list.push_back(lazy_tensor(name, kinds[i].table));
      continue;
    }
    std::vector<int64_t> begins(static_cast<size_t>(world_.size()), 0);
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      const int64_t first =
          like.is_elsewhere ? (rank <= owners_.at(like.parameter) ? 0 : parameter.handle.numel())
                            : parameter.part_of(rank).first;
      begins[static_cast<size_t>(rank)] = first == 0 ? 0
                                          : first == parameter.handle.numel()
                                              ? values.numel()
                                              : state_offsets(options, like.is_8bit, first)[i];
    }
    list.push_back(divided({.index = static_cast<int64_t>(slot),
                            .what = Request::kState,
                            .state = static_cast<int64_t>(i)},
                           name, values.scalar_type(), values.sizes().vec(), std::move(begins)));
  }
  return list;
}

LazyTensor StateGather::weight(const Parameter& parameter) {
  return stored(parameter, Request::kWeight, parameter.weight);
}

LazyTensor StateGather::correction(const Parameter& parameter) {
  return stored(parameter, Request::kCorrection, parameter.correction);
}

// `part`: what this rank has of them.
LazyTensor StateGather::stored(const Parameter& parameter, int64_t what, const Tensor& part) {
  std::vector<int64_t> begins;
  for (int64_t rank = 0; rank < world_.size(); ++rank) {
    begins.push_back(parameter.part_of(rank).first);
  }
  return divided({.index = static_cast<int64_t>(parameter.handle.id()), .what = what},
                 parameter.name(), part.scalar_type(), parameter.handle.sizes().vec(),
                 std::move(begins));
}

LazyTensor StateGather::divided(const Request& where, std::string name, at::ScalarType type,
                                std::vector<int64_t> shape, std::vector<int64_t> begins) {
  begins.push_back(c10::multiply_integers(shape));
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t row = rows == 0 ? 0 : begins.back() / rows;
  LazyTensor tensor{.name = std::move(name), .type = type, .shape = shape};
  // A writer asks for less than is worth a message.
  struct Ahead {
    int64_t first = 0;  // row
    int64_t count = 0;
    Tensor bytes;
  };
  tensor.rows = [this, where, type, shape = std::move(shape), begins = std::move(begins), row, rows,
                 ahead = std::make_shared<Ahead>()](int64_t first, int64_t count) {
    const auto size = static_cast<int64_t>(c10::elementSize(type));
    if (first < ahead->first || first + count > ahead->first + ahead->count) {
      const int64_t more = kMessageBytes / std::max<int64_t>(1, row * size);
      ahead->first = first;
      ahead->count = std::min(rows - first, std::max(count, more));
      ahead->bytes = Tensor();
      ahead->bytes = bytes_of_rows(where, begins, first * row, ahead->count * row, size);
    }
    std::vector<int64_t> part = shape;
    if (!part.empty()) part[0] = count;
    const Tensor result =
        ahead->bytes.narrow(0, (first - ahead->first) * row * size, count * row * size)
            .view(type)
            .view(part);
    if (first + count == rows) *ahead = {};  // the reader has the last of it
    return result;
  };
  return tensor;
}

// Elements [first, first + count) of a flattened tensor.
Tensor StateGather::bytes_of_rows(const Request& where, const std::vector<int64_t>& begins,
                                  int64_t first, int64_t count, int64_t element_size) {
  const Tensor bytes = at::empty({count * element_size}, at::kByte);
  int64_t at = first;
  for (size_t rank = 0; rank + 1 < begins.size(); ++rank) {
    const int64_t end = std::min(begins[rank + 1], first + count);
    if (at >= end) continue;
    Request request = where;
    request.owner = static_cast<int64_t>(rank);
    request.first = (at - begins[rank]) * element_size;
    request.bytes = (end - at) * element_size;
    bytes.narrow(0, (at - first) * element_size, request.bytes).copy_(ask(request));
    at = end;
  }
  return bytes;
}

Tensor StateGather::own_bytes(const Request& request) const {
  const Tensor all = located(request).detach().contiguous().view({-1}).view(at::kByte);
  return all.narrow(0, request.first, request.bytes).cpu();
}

// A state's, parameter's or correction's tensor on this rank.
const Tensor& StateGather::located(const Request& request) const {
  const auto index = static_cast<size_t>(request.index);
  if (request.what == Request::kState) {
    return optimizer_.slots().at(index).state.at(static_cast<size_t>(request.state)).second;
  }
  const Parameter& parameter = optimizer_.parameters().parameters().at(index);
  return request.what == Request::kWeight ? parameter.weight : parameter.correction;
}

Tensor StateGather::ask(const Request& request) {
  if (request.owner == world_.rank()) return own_bytes(request);
  if (leads_) return bring(request);
  std::unique_lock lock(desk_->mutex);
  desk_->request = request;
  desk_->changed.notify_all();
  desk_->changed.wait(lock, [&] { return desk_->answer || desk_->is_closed; });
  // serve() reports the dead rank.
  if (!desk_->answer) throw PeerLost("");
  return *std::exchange(desk_->answer, std::nullopt);
}

void StateGather::serve(const std::function<bool()>& is_done) {
  const c10::NoGradGuard no_grad;
  if (!world_.is_first()) return follow();
  serve_as_first(is_done);
}

// Of the other ranks: until rank 0 has no more requests.
void StateGather::follow() {
  while (bring({}).defined()) {
  }
}

void StateGather::serve_as_first(const std::function<bool()>& is_done) {
  constexpr auto kTimeout = std::chrono::milliseconds(5);  // interval between checks of is_done
  std::unique_lock lock(desk_->mutex);
  while (true) {
    desk_->changed.wait_for(lock, kTimeout, [&] { return desk_->request.has_value(); });
    if (!desk_->request) {
      lock.unlock();
      if (is_done()) break;
      lock.lock();
      continue;
    }
    const Request request = *std::exchange(desk_->request, std::nullopt);
    lock.unlock();
    try {
      const Tensor rows = bring(request);
      lock.lock();
      desk_->answer = rows;
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      desk_->is_closed = true;
      desk_->changed.notify_all();
      throw;
    }
    desk_->changed.notify_all();
  }
  (void)bring({});
}

void StateGather::lead(const std::function<void()>& write) {
  const c10::NoGradGuard no_grad;
  if (!world_.is_first()) return follow();
  std::exception_ptr failure;
  leads_ = true;
  try {
    write();
  } catch (...) {
    failure = std::current_exception();
  }
  leads_ = false;
  (void)bring({});
  if (failure) std::rethrow_exception(failure);
}

// Returns the bytes that rank 0 requests, on rank 0; undefined if there are no more requests.
Tensor StateGather::bring(const Request& request) {
  std::array<int64_t, 6> said = {request.index + 1, request.what,  request.state,
                                 request.owner,     request.first, request.bytes};
  const auto count = static_cast<int64_t>(said.size());
  const Tensor own = at::from_blob(said.data(), {count}, at::kLong);
  const Tensor of_all = at::empty({world_.size(), count}, at::kLong);
  world_.all_gather(of_all.view(-1), own);
  std::copy_n(of_all.const_data_ptr<int64_t>(), count, said.begin());  // rank 0's
  if (said[0] == 0) return {};
  const Request asked{.index = said[0] - 1,
                      .what = said[1],
                      .state = said[2],
                      .owner = said[3],
                      .first = said[4],
                      .bytes = said[5]};
  // From the owner to rank 0 alone.
  const bool is_owner = asked.owner == world_.rank();
  std::vector<int64_t> given(static_cast<size_t>(world_.size()), 0);
  std::vector<int64_t> taken = given;
  if (is_owner) given[0] = asked.bytes;
  if (world_.is_first()) taken[static_cast<size_t>(asked.owner)] = asked.bytes;
  const Tensor bytes = at::empty({world_.is_first() ? asked.bytes : 0}, at::kByte);
  world_.all_to_all(bytes, is_owner ? own_bytes(asked) : at::empty({0}, at::kByte), taken, given);
  return bytes;
}

LazyTensors state_tensors(const Optimizer& optimizer, size_t slot, Snapshot* snapshot,
                          StateGather* gather) {
  const Optimizer::Slot& own = optimizer.slots().at(slot);
  const bool is_divided = optimizer.parameters().parameters()[own.parameter].is_divided();
  if (own.is_elsewhere || is_divided) {
    FT_CHECK(gather != nullptr, "a state of another process");
    return gather->tensors(slot);
  }
  LazyTensors list;
  for (const auto& [name, values] : own.state) {
    if (values.defined()) list.push_back(lazy_or_held(snapshot, name, values));
  }
  return list;
}

}  // namespace finetune
