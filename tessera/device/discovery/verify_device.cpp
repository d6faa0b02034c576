// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/verify_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/ir/value.h"

namespace tessera {
namespace {

constexpr std::uint64_t elements = 1000;
constexpr std::uint32_t max_block_threads = 64;  // maximum number of threads of a block

/// Each block reverses its elements through shared memory, then computes y = 2 x + 1. The last block is partial.
ir::Function trace(std::uint32_t threads) {
  ir::Builder builder(verify_kernel_name, ir::KernelKind::block, {threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const auto tile = ir::shared(DType::f32, threads);
  const ir::Value t = ir::thread_id();
  const ir::Value i = ir::global_id();
  tile.store(t, x.load_if(i < x.size(), i, 0.0f));
  ir::barrier();
  const ir::Value from = ir::Operand(std::int64_t{threads} - 1) - t;
  ir::if_(i < y.size(), [&] { y.store(i, tile.load(from) * 2.0f + 1.0f); });
  return builder.finish();
}

/// y = softmax + cos + tanh + a sum of products, each over the elements of a block. All blocks are full.
ir::Function trace_functions(std::uint32_t threads) {
  ir::Builder builder("tessera_verify_functions", ir::KernelKind::block, {threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const auto tile = ir::shared(DType::f32, threads);
  const ir::Value t = ir::thread_id(), i = ir::global_id(), v = x.load(i);
  tile.store(t, v);
  const ir::Value e = ir::exp(v - ir::block_max(v)), share = e / ir::block_sum(e);
  ir::barrier();
  const ir::Variable sum(DType::f32, 0);
  ir::for_(0, static_cast<int>(threads), [&](ir::Value k) {
    sum.set(ir::fma(tile.load(k), x.load(i - t + (k + t) % static_cast<int>(threads)), sum.get()));
  });
  y.store(i, share + ir::cos(v) + ir::tanh(v) + sum.get());
  return builder.finish();
}

std::uint32_t threads_on(const DriverDevice& device) { return block_threads(device.info().can, max_block_threads); }

/// Compiles the kernel, even if it is cached. If the device uses a pack, the kernel is loaded from it.
std::unique_ptr<LoadedKernel> compile_uncached(DriverDevice& device, const CompileRequest& request) {
  KernelCounters ignored;
  auto packed = load_from_pack(device, std::span(&request, 1), ignored);
  if (packed[0]) return std::move(packed[0]);
  return std::move(device.compile(std::span(&request, 1)).at(0));
}

/// The kernel for each block size: 64, 32, ..., 1 threads.
struct Traced {
  std::vector<ir::Function> kernels;
  Traced() {
    for (std::uint32_t threads = max_block_threads; threads != 0; threads /= 2) kernels.push_back(trace(threads));
  }
};

/// Frees the memory at the end of the scope.
struct Block {
  DriverDevice& device;
  Allocation allocation;
  Block(DriverDevice& d, std::size_t bytes) : device(d), allocation(d.allocate(bytes, MemoryKind::device)) {}
  ~Block() { device.release(allocation); }
  Block(const Block&) = delete;
};

/// Runs the kernel on x with blocks of `threads` threads, and reads the result into y.
void run(DriverDevice& device, LoadedKernel& kernel, std::uint32_t threads, const std::vector<float>& x,
         std::vector<float>& y) {
  const std::size_t bytes = x.size() * sizeof(float);
  const Block from(device, bytes), to(device, bytes);
  const auto queue = device.make_queue();
  queue->upload(from.allocation, 0, x.data(), bytes);
  const std::uint32_t poison = 0x7fc0dead;  // a NaN; detects elements that were not written
  queue->fill(to.allocation, 0, bytes, std::as_bytes(std::span(&poison, 1)));
  const std::array arguments = {Argument{.allocation = &from.allocation, .elements = x.size()},
                                Argument{.allocation = &to.allocation, .elements = x.size()}};
  queue->launch(kernel, {(x.size() + threads - 1) / threads, 1, 1}, arguments);
  if (const auto event = queue->record()) event->wait();  // also tests events, because later work uses them
  y.resize(x.size());
  queue->download(y.data(), to.allocation, 0, bytes);
  queue->finish();
}

}  // namespace

std::string verify_device(DriverDevice& device, KernelCounters* counters) {
  static constinit os::PerProcess<Traced> traced;
  const std::uint32_t threads = threads_on(device);
  std::vector<float> x(elements), y;
  for (std::uint64_t i = 0; i < elements; ++i) x[i] = static_cast<float>(i) * 0.25f - 100.0f;
  const ir::Function& function =
      traced->kernels[static_cast<std::size_t>(std::countr_zero(max_block_threads / threads))];
  const CompileRequest request{&function, Variant{}};
  const auto kernel = counters != nullptr
                          ? std::move(load_or_compile(device, std::span(&request, 1), *counters)[0].kernel)
                          : compile_uncached(device, request);
  run(device, *kernel, threads, x, y);
  for (std::uint64_t i = 0; i < elements; ++i) {
    const std::uint64_t source = i / threads * threads + (threads - 1 - i % threads);
    const float expected = (source < elements ? x[source] : 0.0f) * 2.0f + 1.0f;  // exact in f32
    if (y[i] != expected) {
      return fmt::format("the first kernel computed a wrong result: element {} of {} is {}, expected {}", i, elements,
                         y[i], expected);
    }
  }
  return {};
}

std::string verify_compiler(DriverDevice& device) {
  if (const std::string wrong = verify_device(device); !wrong.empty()) return wrong;
  const std::uint32_t threads = threads_on(device);
  std::vector<float> x(std::size_t{threads} * 4), y;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 37) * 0.1f - 1.7f;
  const ir::Function function = trace_functions(threads);
  const CompileRequest request{&function, Variant{}};
  const auto kernel = compile_uncached(device, request);
  run(device, *kernel, threads, x, y);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t t = i % threads;
    const float* const block = x.data() + (i - t);
    const double largest = *std::max_element(block, block + threads);
    double total = 0, products = 0;
    for (std::size_t k = 0; k < threads; ++k) {
      total += std::exp(block[k] - largest);
      products += double{block[k]} * block[(k + t) % threads];
    }
    const double expected = std::exp(x[i] - largest) / total + std::cos(x[i]) + std::tanh(x[i]) + products;
    if (!(std::abs(y[i] - expected) <= 1e-3))
      return fmt::format("the second verification kernel computed a wrong result: element {} of {} is {}, expected {}",
                         i, x.size(), y[i], expected);
  }
  return {};
}

std::vector<ir::Function> verify_kernels(const Capabilities& can) {
  const std::uint32_t threads = block_threads(can, max_block_threads);
  std::vector<ir::Function> kernels;
  kernels.push_back(trace(threads)), kernels.push_back(trace_functions(threads));
  return kernels;
}

}  // namespace tessera
