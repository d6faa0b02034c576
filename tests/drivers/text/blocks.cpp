// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/text/blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tessera::text {
namespace {

constexpr std::size_t stack_bytes = std::size_t{512} << 10, page = 4096;

#if defined(__x86_64__)
using Context = void*;  // a stack pointer; the saved registers are on the stack
/// Saves the current execution in `*from` and resumes `to`.
extern "C" __attribute__((visibility("hidden"))) void tessera_text_switch(Context* from, Context to);
asm(R"(
  .text
  .hidden tessera_text_switch
  .type tessera_text_switch, @function
tessera_text_switch:
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
  .size tessera_text_switch, . - tessera_text_switch
)");
#else
using Context = ucontext_t;
#endif

struct Block;

// Notifies the address sanitizer of stack switches.
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** kept, const void* bottom, std::size_t bytes);
extern "C" void __sanitizer_finish_switch_fiber(void* kept, const void** bottom, std::size_t* bytes);
void leave_for(void** kept, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(kept, bottom, bytes);
}
void arrived(void* kept, const void** bottom, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(kept, bottom, bytes);
}
#else
void leave_for(void**, const void*, std::size_t) {}
void arrived(void*, const void**, std::size_t*) {}
#endif

/// A fiber with its stack. It is reused for different threads.
struct Fiber {
  std::byte* stack = nullptr;
  Context context{};
  Block* block = nullptr;
  unsigned index = 0;    ///< index of the thread in the block
  void* kept = nullptr;  ///< state of the sanitizer while another stack is in use

  Fiber() {
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stack = static_cast<std::byte*>(memory);
    mprotect(stack, page, PROT_NONE);  // guard page, to detect stack overflows
    reset();
  }
  Fiber(const Fiber&) = delete;
  ~Fiber() { munmap(stack, stack_bytes); }
  void reset();
};

enum class State : std::uint8_t { fresh, ready, at_barrier, at_exchange, done };

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes, group;
};

struct Lane {
  Thread thread{};
  State state = State::fresh;
  Fiber* fiber = nullptr;
  std::vector<AsyncCopy> copies = {};
  unsigned groups = 0;  ///< number of committed groups of copies
};

struct Subgroup {
  const char* what = nullptr;
  unsigned come = 0, threads = 0, round = 0;
  unsigned long long mask = 0;
  alignas(16) unsigned char values[2][64][exchange_bytes];
};

struct Block {
  const BlockRun* run = nullptr;
  std::vector<Lane> lanes;
  std::vector<std::unique_ptr<Subgroup>> subgroups;
  unsigned at_barrier = 0, done = 0;
  std::string error;
  Context scheduler{};
  void* kept = nullptr;          ///< see Fiber
  const void* bottom = nullptr;  ///< bottom of the scheduler's stack
  std::size_t stack_bytes = 0;
};

/// The idle fibers of this host thread.
struct Stacks {
  std::vector<std::unique_ptr<Fiber>> all;
  std::vector<Fiber*> idle;
  Fiber* take() {
    if (idle.empty()) {
      all.push_back(std::make_unique<Fiber>());
      idle.push_back(all.back().get());
    }
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
  }
};
thread_local Stacks stacks;
thread_local Fiber* running = nullptr;

void switch_to(Context* from, Context* to) {
#if defined(__x86_64__)
  tessera_text_switch(from, *to);
#else
  swapcontext(from, to);
#endif
}

[[gnu::noinline]] Lane& lane_of(Fiber* fiber) { return fiber->block->lanes[fiber->index]; }

/// Suspends the running kernel thread until the scheduler resumes it.
void give_way(State state) {
  Fiber* const fiber = running;
  lane_of(fiber).state = state;
  leave_for(&fiber->kept, fiber->block->bottom, fiber->block->stack_bytes);
  switch_to(&fiber->context, &fiber->block->scheduler);
  arrived(fiber->kept, &fiber->block->bottom, &fiber->block->stack_bytes);
}

void fiber_main() {
  arrived(nullptr, &running->block->bottom, &running->block->stack_bytes);
  for (;;) {
    Fiber* const fiber = running;
    fiber->block->run->body(lane_of(fiber).thread);
    ++fiber->block->done;
    give_way(State::done);
  }
}

void Fiber::reset() {
#if defined(__x86_64__)
  // Prepares the stack as if a caller of fiber_main had been suspended: six registers and the return address, with the
  // alignment after a call.
  auto* top = reinterpret_cast<void**>(stack + stack_bytes - 64);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(&fiber_main);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  context = top - 8;
#else
  getcontext(&context);
  context.uc_stack.ss_sp = stack + page;
  context.uc_stack.ss_size = stack_bytes - page;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
#endif
}

// Functions that the compiled text calls.

const Thread* self() { return &lane_of(running).thread; }

[[noreturn]] void fail(const char* what) {
  Block& block = *running->block;
  if (block.error.empty()) block.error = what;
  for (;;) give_way(State::at_barrier);  // the scheduler never resumes this thread
}

void barrier() {
  Block& block = *running->block;
  if (block.done != 0) fail("a thread of the block has ended before a barrier that others wait at");
  if (++block.at_barrier < block.lanes.size()) return give_way(State::at_barrier);
  block.at_barrier = 0;
  for (Lane& lane : block.lanes) lane.state = State::ready;
  give_way(State::ready);
}

const unsigned char* exchange(const char* what, unsigned long long mask, const void* value, unsigned bytes) {
  Block& block = *running->block;
  Lane& own = lane_of(running);
  const unsigned width = own.thread.width, lane = own.thread.linear % width;
  Subgroup& group = *block.subgroups[own.thread.linear / width];
  const unsigned long long here = group.threads == 64 ? ~0ull : (1ull << group.threads) - 1;
  if ((mask & here) != here) fail("a subgroup operation leaves out lanes that have threads");
  if (mask >> lane == 0 || bytes > exchange_bytes) fail("a subgroup operation with a wrong mask or value");
  if (group.come == 0) group.what = what, group.mask = mask;
  if (std::strcmp(group.what, what) != 0 || group.mask != mask)
    fail("lanes of one subgroup are at different operations");
  auto& values = group.values[group.round % 2];
  std::memcpy(values[lane], value, bytes);
  if (++group.come < group.threads) {
    give_way(State::at_exchange);
  } else {
    group.come = 0;
    ++group.round;
    const unsigned first = own.thread.linear / width * width;
    for (unsigned i = 0; i < group.threads; ++i)
      if (block.lanes[first + i].state == State::at_exchange) block.lanes[first + i].state = State::ready;
  }
  return values[0];
}

void copy_async(void* to, const void* from, unsigned bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    fail("an asynchronous copy between addresses that are not multiples of its size");
  Lane& own = lane_of(running);
  own.copies.push_back({to, from, bytes, own.groups});
}
void commit_async() { ++lane_of(running).groups; }
void wait_async(unsigned groups) {
  Lane& own = lane_of(running);
  std::erase_if(own.copies, [&](const AsyncCopy& c) {
    if (c.group + groups >= own.groups) return false;
    std::memcpy(c.to, c.from, c.bytes);
    return true;
  });
}

std::string stuck(const Block& block) {
  unsigned barrier = 0, exchange = 0;
  for (const Lane& lane : block.lanes) {
    barrier += lane.state == State::at_barrier;
    exchange += lane.state == State::at_exchange;
  }
  return std::to_string(barrier) + " threads wait at a barrier and " + std::to_string(exchange) +
         " at a subgroup operation, " + std::to_string(block.done) + " of " + std::to_string(block.lanes.size()) +
         " have ended: deadlock";
}

/// Runs a block. Returns false and sets `error` if the block cannot finish.
bool run_block(Block& block, Dim number, std::uint64_t order) {
  const BlockRun& run = *block.run;
  const auto threads = static_cast<unsigned>(block.lanes.size());
  block.at_barrier = block.done = 0;
  unsigned linear = 0;
  for (unsigned z = 0; z < run.block.z; ++z)
    for (unsigned y = 0; y < run.block.y; ++y)
      for (unsigned x = 0; x < run.block.x; ++x, ++linear)
        block.lanes[linear] = {{{x, y, z}, number, run.block, run.grid, linear, run.width}, State::fresh, nullptr};
  for (auto& group : block.subgroups) group->come = 0;
  if (run.begin_block) run.begin_block();

  // The threads run forwards, backwards, or with a stride from an arbitrary start.
  unsigned step = 1, start = 0;
  if (order % 3 == 1) step = threads - 1, start = threads - 1;
  if (order % 3 == 2) {
    start = static_cast<unsigned>(order / 3 % threads);
    step = static_cast<unsigned>(order / 7 % threads) | 1;
    while (std::gcd(step, threads) != 1) step += 2;
  }
  while (block.done < threads) {
    bool moved = false;
    unsigned at = start % threads;
    for (unsigned i = 0; i < threads; ++i, at = (at + step) % threads) {
      Lane& lane = block.lanes[at];
      if (lane.state != State::fresh && lane.state != State::ready) continue;
      if (lane.fiber == nullptr) {
        lane.fiber = stacks.take();
        lane.fiber->block = &block, lane.fiber->index = at;
      }
      running = lane.fiber;
      leave_for(&block.kept, lane.fiber->stack + page, stack_bytes - page);
      switch_to(&block.scheduler, &lane.fiber->context);
      arrived(block.kept, nullptr, nullptr);
      running = nullptr;
      moved = true;
      if (!block.error.empty()) return false;
      if (lane.state == State::done) {
        stacks.idle.push_back(lane.fiber);
        lane.fiber = nullptr;
      }
    }
    if (!moved) {
      block.error = stuck(block);
      return false;
    }
  }
  return true;
}

}  // namespace

const Host& host() {
  static constexpr Host the_host = {self, barrier, exchange, copy_async, commit_async, wait_async, fail};
  return the_host;
}

std::string run_blocks(const BlockRun& run) {
  Block block;
  block.run = &run;
  const unsigned threads = run.block.x * run.block.y * run.block.z;
  block.lanes.resize(threads);
  for (unsigned first = 0; first < threads; first += run.width) {
    block.subgroups.push_back(std::make_unique<Subgroup>());
    block.subgroups.back()->threads = std::min(run.width, threads - first);
  }
  std::uint64_t order = run.order;
  for (unsigned z = 0; z < run.grid.z; ++z)
    for (unsigned y = 0; y < run.grid.y; ++y)
      for (unsigned x = 0; x < run.grid.x; ++x) {
        order = order * 6364136223846793005u + 1442695040888963407u;
        if (run_block(block, {x, y, z}, order >> 33)) continue;
        // Resets the fibers of threads that have not finished.
        for (Lane& lane : block.lanes)
          if (lane.fiber != nullptr) {
            lane.fiber->reset();
            stacks.idle.push_back(lane.fiber);
          }
        return "block " + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ": " + block.error;
      }
  return {};
}

}  // namespace tessera::text
