// SPDX-License-Identifier: MIT
#include "cuda_on_cpu/cuda_on_cpu.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

// Saves the callee-saved registers and continues where `to` was suspended. System V ABI.
extern "C" void finetune_switch_fiber(void** from, void* to);
asm(R"(
.local finetune_switch_fiber
.type finetune_switch_fiber, @function
finetune_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace cuda_on_cpu {

Position position;

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kLanes = 32;

enum class At { kRunning, kBarrier, kExchange, kDone };

struct Fiber {
  void* context = nullptr;
  std::unique_ptr<char[]> stack;
  At at = At::kRunning;
  int line = 0;
  unsigned mask = 0;
  const void* value = nullptr;
  size_t bytes = 0;
  // The value of the latest exchange that is complete. Its lanes read it in the pass that follows,
  // before any of them can complete another.
  std::array<char, kLargestValue> shown = {};
};

class Block {
 public:
  std::vector<Fiber> fibers;
  size_t count = 0;
  size_t current = 0;
  void (*kernel)(const void*) = nullptr;
  const void* arguments = nullptr;

  Fiber& self() { return fibers[current]; }
  // Continues with the next fiber of this pass, or with the scheduler after the last.
  void give_way() {
    Fiber& from = self();
    finetune_switch_fiber(&from.context, advance() ? self().context : scheduler_);
  }
  void set_order(size_t threads, unsigned order);
  void run();

 private:
  void start_fibers();
  bool advance();
  bool run_ready();
  bool release_exchange();
  bool release_barrier();

  void* scheduler_ = nullptr;
  std::vector<size_t> turns_;  // the order of the fibers in a pass
  size_t next_ = 0;            // turn
  unsigned order_ = 0;
};

// Keeps the stacks.
Block the_block;
std::mutex the_mutex;

void enter_fiber() {
  the_block.kernel(the_block.arguments);
  the_block.self().at = At::kDone;
  the_block.give_way();
}

void Block::set_order(size_t threads, unsigned order) {
  if (threads == count && order == order_) return;
  count = threads;
  order_ = order;
  turns_.resize(count);
  for (size_t n = 0; n < count; ++n) {
    // 7919 is a prime, so this is a permutation for every smaller number of threads.
    turns_[n] = order == 0 ? n : (n * 7919 + order) % count;
  }
}

void Block::start_fibers() {
  if (fibers.size() < count) fibers.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    if (!fiber.stack) fiber.stack.reset(new char[kStackBytes]);
    const auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) & ~uintptr_t{15};
    // The switch pops the entry's address from here, below the stack alignment at a call.
    auto** slot = reinterpret_cast<void**>(top) - 1;
    *slot-- = nullptr;
    *slot = reinterpret_cast<void*>(&enter_fiber);
    fiber.context = slot - 6;
    fiber.at = At::kRunning;
  }
}

bool Block::advance() {
  while (next_ < count) {
    const size_t i = turns_[next_++];
    if (fibers[i].at != At::kRunning) continue;
    current = i;
    position.thread = {static_cast<unsigned>(i), 0, 0};
    return true;
  }
  return false;
}

// Every fiber that can run does, until it waits or ends.
bool Block::run_ready() {
  next_ = 0;
  if (!advance()) return false;
  finetune_switch_fiber(&scheduler_, self().context);
  return true;
}

// Completes the exchange of each warp if every lane of its mask has arrived.
bool Block::release_exchange() {
  bool released = false;
  for (size_t warp = 0; warp < count; warp += kLanes) {
    const size_t lanes = std::min(kLanes, count - warp);
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (fibers[warp + lane].at != At::kExchange) continue;
      const int line = fibers[warp + lane].line;
      const unsigned mask = fibers[warp + lane].mask;
      for (size_t other = 0; other < lanes; ++other) {
        if ((mask >> other & 1) == 0) continue;
        Fiber& fiber = fibers[warp + other];
        if (fiber.at != At::kExchange || fiber.line != line) {
          throw std::runtime_error("lane " + std::to_string(other) +
                                   " is not at the exchange of line " + std::to_string(line));
        }
      }
      for (size_t other = 0; other < lanes; ++other) {
        if ((mask >> other & 1) == 0) continue;
        Fiber& fiber = fibers[warp + other];
        std::memcpy(fiber.shown.data(), fiber.value, fiber.bytes);
        fiber.at = At::kRunning;
      }
      released = true;
      break;
    }
  }
  return released;
}

bool Block::release_barrier() {
  const Fiber* waiting = nullptr;
  size_t done = 0;
  for (size_t i = 0; i < count; ++i) {
    if (fibers[i].at == At::kDone) {
      ++done;
      continue;
    }
    if (waiting != nullptr && fibers[i].line != waiting->line) {
      throw std::runtime_error("threads wait at barriers of lines " +
                               std::to_string(waiting->line) + " and " +
                               std::to_string(fibers[i].line));
    }
    waiting = &fibers[i];
  }
  if (waiting == nullptr) return false;
  if (done > 0) {
    throw std::runtime_error("a thread left before the barrier of line " +
                             std::to_string(waiting->line));
  }
  for (size_t i = 0; i < count; ++i) fibers[i].at = At::kRunning;
  return true;
}

void Block::run() {
  start_fibers();
  while (run_ready() || release_exchange() || release_barrier()) {
  }
}

}  // namespace

void wait_at_barrier(int line) {
  Fiber& fiber = the_block.self();
  fiber.at = At::kBarrier;
  fiber.line = line;
  the_block.give_way();
}

void exchange(unsigned mask, const void* value, size_t bytes, int line) {
  Fiber& fiber = the_block.self();
  fiber.value = value;
  fiber.bytes = bytes;
  fiber.mask = mask;
  fiber.at = At::kExchange;
  fiber.line = line;
  the_block.give_way();
}

const void* value_of_lane(unsigned lane) {
  return the_block.fibers[the_block.current / kLanes * kLanes + lane].shown.data();
}

void run(void (*kernel)(const void*), const void* arguments, Index blocks, Index threads,
         unsigned order) {
  const std::lock_guard lock(the_mutex);
  the_block.kernel = kernel;
  the_block.arguments = arguments;
  the_block.set_order(threads.x, order);
  position.threads = threads;
  position.blocks = blocks;
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      position.block = {x, y, 0};
      the_block.run();
    }
  }
}

}  // namespace cuda_on_cpu
