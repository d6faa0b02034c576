// SPDX-License-Identifier: Apache-2.0
// Contexts, events, memory and kernels of one device.
#include "tessera/backend/stream/device.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "tessera/backend/common/image.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/device/driver.h"
#include "tessera/device/settings.h"

namespace tessera::stream {

// Contexts.

ContextScope::ContextScope(const DeviceContext& device, Doing doing) : device_(device) {
  if (doing == anything) relaxed_.emplace(device.api());
  const Api& api = device.api();
  device.check(api.current(&before_), "getting the current context");
  if (before_ != device.context) device.check(api.set_current(device.context), "making the context current");
}
ContextScope::~ContextScope() {
  if (before_ != device_.context) device_.api().set_current(before_);
}

// Events. They are pooled, because creating an event takes several times as long as recording it.

Handle DeviceContext::acquire_event() {
  {
    std::lock_guard guard(lock_);
    if (!events_.empty()) {
      const Handle event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  Handle event = nullptr;
  check(api().create_event(&event, settings().wait != Settings::Wait::spin), "creating an event");
  return event;
}
void DeviceContext::release_event(Handle event) noexcept {
  try {
    std::lock_guard guard(lock_);
    events_.push_back(event);
  } catch (...) {  // out of memory: the event is leaked
  }
}

bool StreamEvent::done() {
  const ContextScope in(device_);
  return device_.api().query_event(event_) != not_ready;  // completed or failed; wait() throws the error
}
void StreamEvent::wait() {
  const ContextScope in(device_);
  device_.check(device_.wait_for(event_), "waiting for work");
}

// Waits. Drivers poll in most of their waits, which occupies a core. CUDA and HIP block in waits for events that were
// created for it. A thread that blocked needs some ten microseconds to continue, which is long compared with a step of
// a small language model. So short waits are polled.

Code DeviceContext::wait_for(Handle event) const {
  constexpr auto polling = std::chrono::microseconds(50);
  if (settings().wait == Settings::Wait::automatic) {
    const auto end = std::chrono::steady_clock::now() + polling;
    do {
      const Code code = api().query_event(event);
      if (code != not_ready) return code;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
  }
  return api().synchronize_event(event);
}

Code DeviceContext::wait_for_stream(Handle stream) {
  // Whether cuStreamSynchronize blocks is a property of the context, which other code in the process may use. So this
  // waits for an event first. Errors are returned by synchronize_stream().
  if (settings().wait != Settings::Wait::spin && !api().waits_block()) {
    const Handle event = acquire_event();
    if (api().record_event(event, stream) == success) wait_for(event);
    release_event(event);
  }
  return api().synchronize_stream(stream);
}

// Memory.

namespace {
Address address_of(const Allocation& a) { return reinterpret_cast<std::uintptr_t>(a.handle); }
}  // namespace

std::uint64_t StreamDevice::free_memory() const {
  const ContextScope in(device_);
  std::size_t free = 0, total = 0;
  device_.check(device_.api().memory_info(&free, &total), "getting the amount of free memory");
  return free;
}

// For device memory, Allocation::handle is the address. For pinned memory, it is null and `host` is set.
Allocation StreamDevice::allocate(std::size_t bytes, MemoryKind kind) {
  const ContextScope in(device_);
  const Api& api = device_.api();
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  Address address = 0;
  void* host = nullptr;
  const bool pinned = kind == MemoryKind::pinned;
  const Code code = pinned ? api.allocate_pinned(&host, size) : api.allocate(&address, size);
  if (api.fault_of(code) == Fault::memory) {
    std::size_t free = 0, total = 0;
    const bool known = !pinned && api.memory_info(&free, &total) == success;
    fail<OutOfMemory>(
        {.operation = device_.name(),
         .with = {{"bytes", std::to_string(bytes)}, {"free", known ? std::to_string(free) : "unknown"}},
         .wrong = std::string("the driver cannot allocate ") + (pinned ? "pinned host" : "device") +
                  " memory of this size: " + api.code_text(code),
         .remedy = "Free arrays, or work on smaller pieces; other programs may use memory of this device"});
  }
  device_.check(code, "allocating memory");
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), static_cast<std::byte*>(host), bytes};
}

void StreamDevice::release(const Allocation& allocation) noexcept {
  try {
    const ContextScope in(device_);
    if (allocation.handle)
      device_.api().release(address_of(allocation));
    else if (allocation.host)
      device_.api().release_pinned(allocation.host);
  } catch (...) {  // the device is lost, so there is no memory to free
  }
}

// Other devices.

bool StreamDevice::enable_peer_access(DriverDevice& other) {
  const auto* const peer = dynamic_cast<StreamDevice*>(&other);  // null for other drivers
  if (!peer || peer == this || &peer->device_.vendor != &device_.vendor) return false;
  const ContextScope in(device_);
  const Api& api = device_.api();
  bool can = false;
  const Code code = api.enable_peer(device_.facts.ordinal, peer->device_.facts.ordinal, peer->device_.context, &can);
  if (code == success) return can;
  if (api.fault_of(code) == Fault::lost) device_.check(code, "enabling peer access");
  logging::info(
      fmt::format("{}: the driver reports peer access to {}, but refused to enable it: {}; copies go through the host",
                  device_.name(), peer->device_.name(), api.code_text(code)));
  return false;
}

// The vendor's matrix product library.

namespace {
/// Makes the device's context current before it calls the library.
class BlasInContext final : public DriverBlas {
 public:
  BlasInContext(const DeviceContext& device, std::unique_ptr<DriverBlas> blas)
      : device_(device), blas_(std::move(blas)) {}
  ~BlasInContext() override {
    try {
      const ContextScope in(device_);
      blas_.reset();
    } catch (...) {  // the device is lost, so the library cannot be shut down
      static_cast<void>(blas_.release());
    }
  }
  BlasInContext(const BlasInContext&) = delete;
  BlasInContext& operator=(const BlasInContext&) = delete;
  const std::string& name() const override { return blas_->name(); }
  std::optional<std::size_t> plan(const BlasProduct& product, const BlasOperands& operands) override {
    const ContextScope in(device_);
    return blas_->plan(product, operands);
  }
  void enqueue(DriverQueue& queue, const BlasProduct& product, const BlasOperands& operands) override {
    const ContextScope in(device_);
    blas_->enqueue(queue, product, operands);
  }

 private:
  const DeviceContext& device_;
  std::unique_ptr<DriverBlas> blas_;
};
}  // namespace

DriverBlas* StreamDevice::blas(std::string& why) {
  if (blas_) return blas_.get();
  const ContextScope in(device_);
  std::lock_guard guard(device_.vendor.lock);
  if (auto opened = device_.vendor.open_blas(device_.facts, why))
    blas_ = std::make_unique<BlasInContext>(device_, std::move(opened));
  return blas_.get();
}

// Kernels.

std::string StreamDevice::image_key() {
  std::lock_guard guard(device_.vendor.lock);
  const DeviceFacts& facts = device_.facts;
  const std::string compiler = device_.vendor.compiler(facts);
  if (compiler.empty()) return {};
  return backend::text_key(facts.dialect, facts.info) + "architecture: " + facts.architecture +
         "\ncompiler: " + compiler + "\n";
}

std::string StreamDevice::build(const CompileRequest& request) {
  const ContextScope in(device_);
  std::lock_guard guard(device_.vendor.lock);
  const DeviceFacts& facts = device_.facts;
  if (!facts.no_compiler.empty())
    fail<KernelError>({.operation = "kernel " + request.function->name,
                       .with = {{"device", device_.name() + " " + facts.info.name}},
                       .wrong = facts.no_compiler});
  backend::KernelImage image;
  auto built = backend::build_kernels(std::span(&request, 1), facts.dialect, facts.info,
                                      [&](const backend::Program& program, std::string& log) -> std::shared_ptr<void> {
                                        Image made = device_.vendor.compile(facts, program);
                                        log = std::move(made.log);
                                        if (!made.made) return nullptr;
                                        image.program = std::move(made.bytes), image.is_text = made.is_text;
                                        return std::make_shared<bool>(true);
                                      });
  // The driver's own cache of compiled PTX may be off or too small, so its result is stored in Tessera's cache.
  if (std::string machine_code; image.is_text && device_.api().link(image.program, &machine_code)) {
    image.ptx = std::exchange(image.program, std::move(machine_code));
    image.is_text = false;
  }
  built_ = request.function;
  image.form = std::move(built.at(0).emitted);
  return backend::pack(image);
}

std::unique_ptr<LoadedKernel> StreamDevice::load(const CompileRequest& request, const std::string& bytes,
                                                 bool from_pack) {
  const ContextScope in(device_);
  std::lock_guard guard(device_.vendor.lock);
  const Api& api = device_.api();
  DeviceFacts& facts = device_.facts;
  backend::KernelImage image = backend::unpack(bytes);
  // If this process did not build the image, emits the kernel again to notify the observers of emission.
  if (emit::emission_is_observed() && built_ != request.function)
    backend::emitted_kernel(request, facts.dialect, facts.info);
  built_ = nullptr;
  Handle module = nullptr;
  std::string said;
  const Code code = api.load_module(image.program, &module, &said);
  if (api.fault_of(code) == Fault::refused) {
    const std::string used = facts.architecture;
    if (!from_pack && device_.vendor.switch_compiler(facts)) {
      logging::warn(fmt::format("{}: the driver refused to load code compiled for {} ({}); now compiling for {}",
                                device_.name(), used, api.code_text(code), facts.architecture));
      return nullptr;
    }
    fail<KernelError>({.operation = "kernel " + request.function->name,
                       .with = {{"device", device_.name() + " " + facts.info.name},
                                {"architecture", facts.architecture},
                                {"driver", facts.info.driver_version}},
                       .wrong = "the driver refused to load the compiled code: " + api.code_text(code) +
                                (said.empty() ? "" : "\n" + said),
                       .remedy =
                           "The usual cause is a driver that is older than the compiler: install a newer driver, or a "
                           "compiler version that the driver supports"});
  }
  device_.check(code, "loading a kernel");
  std::shared_ptr<void> owned(module, [&device = device_](Handle m) {
    try {
      const ContextScope inside(device);
      device.api().unload_module(m);
    } catch (...) {  // the device is lost, so there is no module to unload
    }
  });
  backend::KernelShape shape(*request.function, std::move(image.form), request.variant.index64);
  return std::make_unique<StreamKernel>(device_, std::move(owned), request, std::move(shape),
                                        std::move(image.is_text ? image.program : image.ptx));
}

std::string StreamKernel::source() const {
  if (!text_.empty()) return text_;
  return backend::emitted_kernel({&as_written_, variant_}, dialect_, device_.facts.info).program();
}

StreamKernel::StreamKernel(DeviceContext& device, std::shared_ptr<void> module, const CompileRequest& request,
                           backend::KernelShape shape, std::string text)
    : device_(device),
      module_(std::move(module)),
      as_written_(*request.function),
      variant_(request.variant),
      dialect_(device.facts.dialect),
      text_(std::move(text)),
      shape_(std::move(shape)),
      block_threads_(device.facts.info.can.max_block_threads) {
  const Api& api = device.api();
  const std::string subject = "kernel " + shape_.name;
  const emit::EmittedKernel& emitted = shape_.emitted;
  stream::check(api, api.get_function(module_.get(), emitted.entry.c_str(), &function_), "looking up a kernel",
                subject);
  int threads = 0;  // lower than the device's limit if the kernel uses many registers
  if (api.max_block_size(function_, &threads) == success && threads > 0)
    block_threads_ = std::min<std::uint64_t>(block_threads_, static_cast<std::uint64_t>(threads));
  const std::uint64_t wanted = std::uint64_t{shape_.block[0]} * shape_.block[1] * shape_.block[2];
  if (shape_.kind == ir::KernelKind::block && wanted > block_threads_)
    fail<KernelError>(
        {.operation = subject,
         .with = {{"device", device.name() + " " + device.facts.info.name}},
         .wrong = fmt::format("its blocks have {} threads, but it uses so many registers that this device "
                              "supports at most {} threads per block",
                              wanted, block_threads_),
         .remedy = "Declare it with smaller blocks"});
  if (emitted.dynamic_shared_bytes != 0)
    stream::check(api, api.allow_shared(function_, emitted.dynamic_shared_bytes), "setting the shared memory size",
                  subject);
}

void** addresses_of(std::span<backend::BoundArgument> arguments) {
  // The vector is reused, so that launches do not allocate.
  auto& addresses = os::PerThread<std::vector<void*>, struct LaunchAddresses>::get();
  addresses.clear();
  for (backend::BoundArgument& a : arguments) addresses.push_back(&a.value);
  return addresses.data();
}

backend::Grid StreamKernel::bind(const std::array<std::uint64_t, 3>& shape, std::span<const Argument> arguments,
                                 std::vector<backend::BoundArgument>*& to) const {
  // The vector is reused, so that launches do not allocate.
  auto& bound = os::PerThread<std::vector<backend::BoundArgument>, StreamKernel>::get();
  backend::bind_arguments(shape_, shape, arguments, bound);
  if (!device_.facts.dialect.offsets)  // otherwise the kernel adds the offset
    for (backend::BoundArgument& a : bound)
      if (a.kind == emit::KernelArgument::Kind::pointer && a.value != 0) a.value += a.byte_offset;
  to = &bound;
  return backend::grid_of(shape_, shape, device_.facts.info.can, block_threads_);
}

void StreamKernel::enqueue(Handle stream, const std::array<std::uint64_t, 3>& shape,
                           std::span<const Argument> arguments) const {
  std::vector<backend::BoundArgument>* bound = nullptr;
  const backend::Grid grid = bind(shape, arguments, bound);
  const Code code =
      device_.api().launch(function_, grid, static_cast<unsigned>(shape_.emitted.dynamic_shared_bytes), stream, *bound);
  if (code != success) stream::check(device_.api(), code, "launching", device_.name() + ", kernel " + shape_.name);
}

void StreamKernel::set_node(Handle executable, Handle node, const std::array<std::uint64_t, 3>& shape,
                            std::span<const Argument> arguments) const {
  std::vector<backend::BoundArgument>* bound = nullptr;
  const backend::Grid grid = bind(shape, arguments, bound);
  const Code code = device_.api().set_kernel_node(executable, node, function_, grid,
                                                  static_cast<unsigned>(shape_.emitted.dynamic_shared_bytes), *bound);
  if (code != success)
    stream::check(device_.api(), code, "changing a graph", device_.name() + ", kernel " + shape_.name);
}

}  // namespace tessera::stream
