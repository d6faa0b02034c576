// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/vendor_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

/// The vendor's library on one device. Never destroyed.
struct Library {
  std::mutex lock;  ///< serialises planning and enqueueing
  bool asked = false;
  DriverBlas* blas = nullptr;  ///< null: not available, or a call failed
  LaunchCounter* counter = nullptr;
};
Library& library_of(const OpenDevice& device) {
  struct All {
    std::mutex lock;
    std::map<const OpenDevice*, std::unique_ptr<Library>> of;
  };
  static constinit os::PerProcess<All> the_libraries;
  All& all = the_libraries.get();
  std::lock_guard hold(all.lock);
  auto& library = all.of[&device];
  if (!library) library = std::make_unique<Library>();
  return *library;
}

void ask(Library& library, OpenDevice& device) {
  library.asked = true;
  std::string why;
  try {
    library.blas = device.driver->blas(why);
  } catch (const KernelError& e) {
    why = e.what();
  }
  if (library.blas)
    library.counter = &launch_counter(library.blas->name() + ": product", device.device);
  else
    logging::info(fmt::format("{}: using Tessera's kernels for matrix products: {}", to_string(device.device), why));
}

void quarantine(Library& library, const OpenDevice& device, const std::string& why) {
  logging::warn(fmt::format("{}: {} failed and will not be used again: {}. Matrix products now use Tessera's kernels",
                            to_string(device.device), library.blas->name(), why));
  library.blas = nullptr;
}

double bytes_of(const BlasMatrix& m, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  return static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(dtype_size(m.dtype)) *
         static_cast<double>(m.batch_stride == 0 ? 1 : batch);
}

double operations_of(const BlasProduct& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
         static_cast<double>(p.batch);
}

/// The rule for NVIDIA and AMD GPUs.
bool wanted_on_gpu(const BlasProduct& p) {
  const auto mode = settings().blas;
  return mode == Settings::Blas::vendor || (mode != Settings::Blas::off && operations_of(p) >= 1 << 25);
}

}  // namespace

bool vendor_product_wanted(Device device, const BlasProduct& p) {
  const auto mode = settings().blas;
  const auto does = [](DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; };
  if (p.a.dtype != p.b.dtype || !does(p.a.dtype) || !does(p.out.dtype)) return false;
  if (is_built_in(device.backend) || !holds_data(device)) return false;
  if (device.backend == Backend::opencl && p.a.dtype != DType::f32) return false;  // all that our CLBlast calls support
  if (device.backend != Backend::opencl || mode != Settings::Blas::automatic) return wanted_on_gpu(p);
  const double operations = operations_of(p);
  constexpr double least_operations = 1 << 27, least_per_byte = 32;
  if (operations < least_operations) return false;
  const double bytes =
      bytes_of(p.a, p.m, p.k, p.batch) + bytes_of(p.b, p.k, p.n, p.batch) + bytes_of(p.out, p.m, p.n, p.batch);
  return operations >= least_per_byte * bytes && device_info(device).kind != DeviceKind::cpu;
}

bool vendor_product_available(Device where, const BlasProduct& product) {
  if (!holds_data(where)) {  // decides for the simulated device, which is not opened
    const std::string& blas = device_info(where).blas;
    return wanted_on_gpu(product) && !blas.empty() && !blas.starts_with("no") && !blas.starts_with("CLBlast");
  }
  if (!vendor_product_wanted(where, product) || thread_context.launch_interceptor != nullptr) return false;
  OpenDevice& device = open_device(where);
  Library& library = library_of(device);
  const std::lock_guard hold(library.lock);
  if (!library.asked) ask(library, device);
  return library.blas != nullptr;
}

bool vendor_product(const VendorProduct& asked) {
  const Device where = asked.out.storage->device();
  OpenDevice& device = open_device(where);
  // Interceptors handle only kernels, not library calls.
  if (!device.holds_data || thread_context.launch_interceptor != nullptr) return false;
  asked.out.storage->flush_readers();  // before locking, because flushing may compute products
  Library& library = library_of(device);
  std::lock_guard hold(library.lock);
  if (!library.asked) ask(library, device);
  if (!library.blas) return false;

  BlasProduct product = asked.product;
  product.tf32 = product.a.dtype == DType::f32 && settings().tf32;
  const auto operand = [](const BufferView& view) {
    return view.storage ? BlasOperand{&view.storage->allocation(), view.byte_offset} : BlasOperand{};
  };
  BlasOperands operands{operand(asked.a), operand(asked.b), operand(asked.out), operand(asked.bias), {}};
  std::shared_ptr<Storage> workspace;
  try {
    const auto bytes = library.blas->plan(product, operands);
    if (!bytes) return false;
    if (*bytes != 0) workspace = Storage::allocate(where, *bytes, library.blas->name() + " workspace");
  } catch (const KernelError& e) {
    quarantine(library, device, e.what());
    return false;
  } catch (const OutOfMemory& e) {  // Tessera's kernels need no workspace
    logging::info(fmt::format("{}: no memory for the workspace of {}, using Tessera's kernel for this product: {}",
                              to_string(where), library.blas->name(), e.what()));
    return false;
  }
  if (workspace) operands.workspace = workspace->allocation();

  PlacementAccess::check("launch", library.counter->name, where);
  Queue& queue = current_queue(where);
  Recorder::check("a matrix product", queue.core());
  for (const BufferView* view : {&asked.a, &asked.b, &asked.bias})
    if (view->storage) view->storage->before_read(queue);
  asked.out.storage->before_write(queue);
  if (workspace) workspace->before_write(queue);
  if (traced()) [[unlikely]]
    trace_line(fmt::format("launch {} on {} {} x {} x {}{}", library.counter->name, to_string(where), product.m,
                           product.n, product.k, product.batch == 1 ? "" : fmt::format(", {} of them", product.batch)));
  try {
    queue.core().submit(
        library.counter->name, [&](DriverQueue& driver) { library.blas->enqueue(driver, product, operands); },
        [&](const QueueUse& use) {
          for (const BufferView* view : {&asked.a, &asked.b, &asked.bias})
            if (view->storage) view->storage->after_read(use);
          asked.out.storage->after_write(use);
          if (workspace) workspace->after_write(use);
        });
  } catch (const KernelError& e) {  // anything that it enqueued is overwritten by our kernel, which runs later
    quarantine(library, device, e.what());
    return false;
  }
  if (Recorder* const recorder = Recorder::of_this_thread()) [[unlikely]] {
    std::array views = {asked.a, asked.b, asked.out, asked.bias, BufferView{.storage = workspace, .dtype = DType::u8}};
    for (BufferView& view : views)
      if (view.storage) view.elements = (view.storage->bytes() - view.byte_offset) / dtype_size(view.dtype);
    recorder->multiplied(std::make_shared<RecordedProduct>(*library.blas, library.lock, product), *library.counter,
                         views);
  }
  library.counter->launches.fetch_add(1, std::memory_order_relaxed);
  PlacementAccess::count(*library.counter);
  return true;
}

}  // namespace tessera
