// SPDX-License-Identifier: MIT
#include "cuda_on_cpu/cuda_on_cpu.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
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
};

class Block {
 public:
  Position position;
  std::vector<Fiber> fibers;
  size_t count = 0;
  size_t current = 0;
  void* scheduler = nullptr;
  void (*kernel)(const void*) = nullptr;
  const void* arguments = nullptr;
  unsigned order = 0;

  Fiber& self() { return fibers[current]; }
  void give_way() { finetune_switch_fiber(&self().context, scheduler); }
  void run();

 private:
  void start_fibers();
  bool run_ready();
  bool release_exchange();
  bool release_barrier();
};

thread_local Block* the_block = nullptr;

void enter_fiber() {
  the_block->kernel(the_block->arguments);
  the_block->self().at = At::kDone;
  the_block->give_way();
}

void Block::start_fibers() {
  count = position.threads.x;
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

bool Block::run_ready() {
  bool ran = false;
  for (size_t n = 0; n < count; ++n) {
    // 7919 is a prime, so this is a permutation for every smaller number of threads.
    const size_t i = order == 0 ? n : (n * 7919 + order) % count;
    if (fibers[i].at != At::kRunning) continue;
    ran = true;
    current = i;
    position.thread = {static_cast<unsigned>(i), 0, 0};
    finetune_switch_fiber(&scheduler, fibers[i].context);
  }
  return ran;
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
                                   " is not at the exchange of line " +
                                   std::to_string(std::abs(line)));
        }
      }
      for (size_t other = 0; other < lanes; ++other) {
        if ((mask >> other & 1) != 0) fibers[warp + other].at = At::kRunning;
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

Position& position() { return the_block->position; }

void wait_at_barrier(int line) {
  Fiber& fiber = the_block->self();
  fiber.at = At::kBarrier;
  fiber.line = line;
  the_block->give_way();
}

void exchange(unsigned mask, const void* value, int line, const TakeFrom& take) {
  Fiber& fiber = the_block->self();
  fiber.value = value;
  fiber.mask = mask;
  fiber.at = At::kExchange;
  fiber.line = line;
  the_block->give_way();
  const size_t warp = the_block->current / kLanes * kLanes;
  take([warp](unsigned lane) { return the_block->fibers[warp + lane].value; });
  // Waits until every lane has read the values, before the next exchange overwrites them.
  fiber.at = At::kExchange;
  fiber.line = -line;
  the_block->give_way();
}

void run(void (*kernel)(const void*), const void* arguments, Index blocks, Index threads,
         unsigned order) {
  static thread_local Block block;  // reuses the stacks
  block.kernel = kernel;
  block.arguments = arguments;
  block.order = order;
  block.position.threads = threads;
  block.position.blocks = blocks;
  the_block = &block;
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      block.position.block = {x, y, 0};
      block.run();
    }
  }
  the_block = nullptr;
}

}  // namespace cuda_on_cpu
