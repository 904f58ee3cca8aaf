// SPDX-License-Identifier: MIT
#include "finetune/state/state_gather.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/distributed/peer_lost.h"

namespace finetune {

// A request of rank 0's writer for rows of one tensor.
struct StateGather::Request {
  int64_t slot = -1;  // -1: no more requests
  int64_t state = 0;
  int64_t first = 0;
  int64_t count = 0;
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
  FT_CHECK(like.is_elsewhere, "a state that lies here");
  optimizer_.create_state(like);
  LazyTensors list;
  for (size_t i = 0; i < like.state.size(); ++i) {
    const auto& [name, values] = like.state[i];
    const auto type = values.scalar_type();
    const std::vector<int64_t> shape = values.sizes().vec();
    const int64_t rows = shape.empty() ? 1 : shape[0];
    const int64_t row_bytes = rows == 0 ? 0 : static_cast<int64_t>(values.nbytes()) / rows;
    list.push_back({.name = name,
                    .type = type,
                    .shape = shape,
                    .rows = [this, slot, i, type, shape, row_bytes](int64_t first, int64_t count) {
                      std::vector<int64_t> part = shape;
                      if (!part.empty()) part[0] = count;
                      return ask({.slot = static_cast<int64_t>(slot),
                                  .state = static_cast<int64_t>(i),
                                  .first = first,
                                  .count = count,
                                  .bytes = count * row_bytes})
                          .view(type)
                          .view(part);
                    }});
  }
  return list;
}

Tensor StateGather::ask(const Request& request) {
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
  if (world_.is_first()) {
    serve_as_first(is_done);
    return;
  }
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

// Returns the bytes of the rows that rank 0 requests, on every rank; undefined if there are no more
// requests.
Tensor StateGather::bring(const Request& request) {
  std::array<int64_t, 5> said = {request.slot + 1, request.state, request.first, request.count,
                                 request.bytes};
  world_.sum(std::span<int64_t>(said));
  if (said[0] == 0) return {};
  const Optimizer::Slot& slot = optimizer_.slots().at(static_cast<size_t>(said[0] - 1));
  const int64_t owner = owners_.at(slot.parameter);
  Tensor bytes = at::empty({said[4]}, at::kByte);
  if (owner == world_.rank()) {
    const Tensor& values = slot.state.at(static_cast<size_t>(said[1])).second;
    const Tensor rows = values.dim() == 0 ? values : values.narrow(0, said[2], said[3]);
    bytes.copy_(rows.contiguous().view({-1}).view(at::kByte));
  }
  world_.broadcast(bytes, owner);
  return bytes;
}

LazyTensors state_tensors(const Optimizer& optimizer, size_t slot, Snapshot* snapshot,
                          StateGather* gather) {
  const Optimizer::Slot& own = optimizer.slots().at(slot);
  if (own.is_elsewhere) {
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
