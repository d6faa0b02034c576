// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/verify_device.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/ir/value.h"

namespace tessera {
namespace {

constexpr std::uint64_t elements = 1000;
constexpr std::uint32_t threads = 64;
constexpr std::uint64_t blocks = (elements + threads - 1) / threads;

/// Each block reverses its 64 elements through shared memory, then y = 2 x + 1; the last block is not full.
ir::Function trace() {
  ir::Builder builder(verify_kernel_name, ir::KernelKind::block, {threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const auto tile = ir::shared(DType::f32, threads);
  const ir::Value t = ir::thread_id();
  const ir::Value i = ir::global_id();
  tile.store(t, x.load_if(i < x.size(), i, 0.0f));
  ir::barrier();
  const ir::Value from = ir::Operand(std::int64_t{threads - 1}) - t;
  ir::if_(i < y.size(), [&] { y.store(i, tile.load(from) * 2.0f + 1.0f); });
  return builder.finish();
}

struct Traced {
  const ir::Function kernel = trace();
};

/// Gives memory back on every way out.
struct Block {
  DriverDevice& device;
  Allocation allocation;
  Block(DriverDevice& d, std::size_t bytes) : device(d), allocation(d.allocate(bytes, MemoryKind::device)) {}
  ~Block() { device.release(allocation); }
  Block(const Block&) = delete;
};

}  // namespace

std::string verify_device(DriverDevice& device, KernelCounters* counters) {
  static constinit os::PerProcess<Traced> traced;
  std::vector<float> x(elements), y(elements);
  for (std::uint64_t i = 0; i < elements; ++i) x[i] = static_cast<float>(i) * 0.25f - 100.0f;
  const std::size_t bytes = elements * sizeof(float);
  Block from(device, bytes), to(device, bytes);
  const CompileRequest request{&traced->kernel, Variant{}};
  const auto kernel = counters != nullptr ? std::move(make_kernels(device, std::span(&request, 1), *counters)[0].kernel)
                                          : std::move(device.compile(std::span(&request, 1)).at(0));
  const auto queue = device.make_queue();
  queue->upload(from.allocation, 0, x.data(), bytes);
  const std::uint32_t poison = 0x7fc0dead;  // a NaN: what is not written shows
  queue->fill(to.allocation, 0, bytes, std::as_bytes(std::span(&poison, 1)));
  const std::array arguments = {Argument{.allocation = &from.allocation, .elements = elements},
                                Argument{.allocation = &to.allocation, .elements = elements}};
  queue->launch(*kernel, {blocks, 1, 1}, arguments);
  if (const auto event = queue->record()) event->wait();  // later work waits for events, so that is tried too
  queue->download(y.data(), to.allocation, 0, bytes);
  queue->finish();
  for (std::uint64_t i = 0; i < elements; ++i) {
    const std::uint64_t source = i / threads * threads + (threads - 1 - i % threads);
    const float expected = (source < elements ? x[source] : 0.0f) * 2.0f + 1.0f;  // exact in f32
    if (y[i] != expected) {
      return fmt::format("the first kernel computed wrongly: element {} of {} is {}, expected {}", i, elements, y[i],
                         expected);
    }
  }
  return {};
}

}  // namespace tessera
