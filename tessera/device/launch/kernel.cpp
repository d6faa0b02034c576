// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/launch/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/device/launch/launch_tracer.h"
#include "tessera/device/launch/prepared_launch.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"
#include "tessera/ir/node.h"

namespace tessera {

LaunchArgument LaunchArgument::scalar(float v) { return scalar(DType::f32, std::bit_cast<std::uint32_t>(v)); }

namespace {

constexpr std::size_t variants = 8;
constexpr std::size_t fast_devices = 8;

std::size_t number_of(Variant v) { return (v.noalias ? 0u : 1u) + (v.index64 ? 2u : 0u) + (v.aligned ? 0u : 4u); }

/// A kernel's state on one device.
struct OnDevice {
  OpenDevice* device = nullptr;
  LaunchCounter* counter = nullptr;
  std::array<std::atomic<LoadedKernel*>, variants> loaded{};
};

/// Returns the file name without extension: "name-1a2b3c4d-cpu0-noalias-i32".
std::string file_stem(const ir::Function& fn, ir::Hash hash, Device device, Variant v) {
  std::string name = fn.name;
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) c = '_';
  return fmt::format("{}-{}-{}{}-{}-{}{}", name.substr(0, 100), ir::to_string(hash).substr(0, 8),
                     backend_name(device.backend), device.index, v.noalias ? "noalias" : "plain",
                     v.index64 ? "i64" : "i32", v.aligned ? "" : "-unaligned");
}

void dump(const std::string& folder, const ir::Function& fn, ir::Hash hash, Device device, Variant v,
          const LoadedKernel& kernel) {
  const std::filesystem::path stem = std::filesystem::path(folder) / file_stem(fn, hash, device, v);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const auto write = [&](const char* ending, const std::string& text) {
    try {
      os::write_text(stem.string() + ending, text, {.flush_to_disk = false});
    } catch (const ArgumentError& e) {
      fail<ArgumentError>({.operation = "environment",
                           .wrong = fmt::format("TESSERA_DUMP={} cannot be written: {}", folder, e.what()),
                           .remedy = "Set it to a writable folder, or unset TESSERA_DUMP"});
    }
  };
  write(".ir.txt", ir::to_text(fn));
  write(".source.txt", kernel.source());
}

/// Warns once that only the interpreter checks kernels. Otherwise, users might take the absence of errors on other
/// devices for success.
void warn_of_no_checks(const ir::Function& fn, Device device) {
  if (!settings().check || is_reference(device.backend) || !holds_data(device)) return;
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  logging::warn(fmt::format(
      "TESSERA_CHECK has no effect on {}: only interp checks kernels (first unchecked kernel: {}). Set "
      "TESSERA_DEVICE=interp, replace devices named in the program by interp, and use the scope interp for tasks "
      "without arrays and for block arrays",
      to_string(device), fn.name));
}

/// Logs "compiled add, fill for cpu:0 in 12.3 ms" or "loaded mul from disk, compiled add for cpu:0 in 12.3 ms".
void log_made(std::span<const CompileRequest> requests, std::span<const MadeKernel> made, Device device, Variant v,
              std::chrono::steady_clock::duration time) {
  if (!logging::enabled(logging::Level::info) || !holds_data(device)) return;
  std::string loaded, compiled;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::string& names = made[i].kept ? loaded : compiled;
    names += (names.empty() ? "" : ", ") + requests[i].function->name;
  }
  logging::info(fmt::format("{}{}{}{}{}{}{}{} for {} in {:.1f} ms", loaded.empty() ? "" : "loaded ", loaded,
                            loaded.empty() ? "" : " from disk", loaded.empty() || compiled.empty() ? "" : ", ",
                            compiled.empty() ? "" : "compiled " + compiled, v.noalias ? "" : " (plain)",
                            v.index64 ? " (index64)" : "", v.aligned ? "" : " (unaligned)", to_string(device),
                            std::chrono::duration<double, std::milli>(time).count()));
}

/// Enqueues and counts a launch. `note(QueueUse)` updates the events of the storages.
template <class N>
void put(QueueCore& core, LoadedKernel& kernel, LaunchCounter& counter, const std::array<std::uint64_t, 3>& shape,
         std::span<const Argument> given, N&& note) {
  const LaunchTracer::During watched(counter.name, counter.device);
  core.submit(
      counter.name, [&](DriverQueue& driver) { driver.launch(kernel, shape, given); }, note);
  counter.launches.fetch_add(1, std::memory_order_relaxed);
  PlacementAccess::count(counter);
}

}  // namespace

struct Kernel::State {
  explicit State(ir::Function f) : function(std::move(f)), facts(function), hash(ir::hash_of(function)) {}
  ~State() { devices.drop(); }

  OnDevice& on(OpenDevice& device) {
    Devices& d = devices.get();
    const auto ordinal = static_cast<std::size_t>(device.ordinal);
    if (ordinal < fast_devices)
      if (OnDevice* known = d.fast[ordinal].load(std::memory_order_acquire)) return *known;
    std::lock_guard hold(d.lock);
    auto& entry = d.all[ordinal];
    if (!entry) {
      entry = std::make_unique<OnDevice>();
      entry->device = &device;
      entry->counter = &launch_counter(function.name, device.device);
      if (ordinal < fast_devices) d.fast[ordinal].store(entry.get(), std::memory_order_release);
    }
    return *entry;
  }

  struct Devices {
    std::array<std::atomic<OnDevice*>, fast_devices> fast{};
    std::mutex lock;
    std::map<std::size_t, std::unique_ptr<OnDevice>> all;  // indexed by OpenDevice::ordinal; guarded by `lock`
    ~Devices() {
      for (auto& [ordinal, on] : all)
        for (auto& kernel : on->loaded)
          if (LoadedKernel* k = kernel.load()) on->device->retire(std::unique_ptr<LoadedKernel>(k));
    }
  };

  const ir::Function function;
  const KernelFacts facts;
  const ir::Hash hash;
  os::PerProcess<Devices> devices;
};

/// Gives the functions in this file access to the private state of kernels.
struct KernelAccess {
  static Kernel::State& state(const Kernel& kernel, const char* asked) {
    if (!kernel.valid())
      fail<KernelError>(
          {.operation = asked, .wrong = "the kernel is empty", .remedy = "Create it from a traced function"});
    return *kernel.state_;
  }

  /// Compiles those kernels of `states` that are not loaded yet, in one batch.
  static void compile(OpenDevice& device, Variant variant, std::span<Kernel::State* const> states) {
    const std::size_t v = number_of(variant);
    std::lock_guard hold(device.compile_lock);
    std::vector<Kernel::State*> missing;
    for (Kernel::State* s : states) {
      if (s->on(device).loaded[v].load(std::memory_order_acquire) != nullptr) continue;
      if (std::find(missing.begin(), missing.end(), s) != missing.end()) continue;
      check_capabilities(s->function, s->facts, device.info);
      missing.push_back(s);
    }
    if (missing.empty()) return;
    std::vector<CompileRequest> requests;
    for (Kernel::State* s : missing) requests.push_back({&s->function, variant});
    warn_of_no_checks(missing.front()->function, device.device);
    std::vector<MadeKernel> made;
    const auto start = std::chrono::steady_clock::now();
    try {
      const DriverCall call(device, DriverCall::Kind::build,
                            interned("the compilation of " + missing.front()->function.name));
      made = load_or_compile(*device.driver, requests, device.kernels);
    } catch (const KernelError& e) {
      // The message must contain the kernel's name, even if the driver's compiler did not print it.
      const std::string text = e.what();
      const bool named = std::any_of(missing.begin(), missing.end(), [&](Kernel::State* s) {
        return text.find(s->function.name) != std::string::npos;
      });
      if (named) throw;
      fail<KernelError>({.operation = "compile " + missing.front()->function.name,
                         .with = {{"device", to_string(device.device)}},
                         .wrong = text});
    }
    if (made.size() != missing.size() ||
        std::any_of(made.begin(), made.end(), [](const MadeKernel& m) { return m.kernel == nullptr; })) {
      fail<KernelError>({.operation = "compile " + missing.front()->function.name,
                         .with = {{"device", to_string(device.device)}},
                         .wrong = "the driver did not return one kernel per request"});
    }
    log_made(requests, made, device.device, variant, std::chrono::steady_clock::now() - start);
    if (const auto& folder = settings().dump; folder && device.holds_data) {  // kernels of a dry run are never executed
      for (std::size_t i = 0; i < missing.size(); ++i)
        dump(*folder, missing[i]->function, missing[i]->hash, device.device, variant, *made[i].kernel);
    }
    for (std::size_t i = 0; i < missing.size(); ++i)
      missing[i]->on(device).loaded[v].store(made[i].kernel.release(), std::memory_order_release);
  }

  static void prepare(OpenDevice& device, std::span<const Kernel> kernels) {
    std::vector<Kernel::State*> states;
    for (const Kernel& kernel : kernels) states.push_back(&state(kernel, "prepare"));
    compile(device, {}, states);
  }

  static LoadedKernel& loaded(Kernel::State& s, OpenDevice& device, OnDevice& on, Variant variant) {
    const std::size_t v = number_of(variant);
    if (LoadedKernel* k = on.loaded[v].load(std::memory_order_acquire)) return *k;
    Kernel::State* const one = &s;
    compile(device, variant, std::span(&one, 1));
    return *on.loaded[v].load(std::memory_order_acquire);
  }
};

Kernel::Kernel(ir::Function function) : state_(std::make_shared<State>(std::move(function))) {}

const ir::Function& Kernel::function() const { return KernelAccess::state(*this, "Kernel::function").function; }
ir::Hash Kernel::hash() const { return KernelAccess::state(*this, "Kernel::hash").hash; }

void Kernel::launch(const std::array<std::uint64_t, 3>& shape, std::span<const LaunchArgument> arguments,
                    Queue* queue) const {
  State& s = KernelAccess::state(*this, "launch");
  const ir::Function& fn = s.function;
  const ArgumentFacts told = check_arguments(fn, arguments);
  const std::optional<Device> here = told.device;
  if (here && queue != nullptr && queue->device() != *here) {
    fail<DeviceError>({.operation = "launch " + fn.name,
                       .with = {{"buffers", to_string(*here)}, {"queue", to_string(queue->device())}},
                       .wrong = "the buffers are not on the queue's device",
                       .remedy = "Use a queue of the buffers' device"});
  }
  const bool something = check_shape(fn, shape);
  Variant variant;
  variant.noalias = !check_overlap(fn, s.facts, arguments);
  if (!something) return;
  variant.aligned = are_aligned(s.facts, arguments);
  variant.index64 = needs_index64(fn, shape, told);

  // Flush before locking or using a queue, because flushing launches kernels.
  for (const std::uint32_t p : s.facts.buffers)
    if (s.facts.writes[p]) arguments[p].view.storage->flush_readers();

  const Device where = here ? *here : queue != nullptr ? queue->device() : current_device();
  PlacementAccess::check("launch", fn.name, where);
  if (LaunchInterceptor* const observer = thread_context.launch_interceptor) [[unlikely]] {
    // Launches by the interceptor are neither intercepted nor recorded.
    thread_context.launch_interceptor = nullptr;
    struct Restore {
      LaunchInterceptor* observer;
      Recorder* recorder;
      ~Restore() { thread_context.launch_interceptor = observer, thread_context.recorder = recorder; }
    } const restore{observer, std::exchange(thread_context.recorder, nullptr)};
    return observer->launched(*this, where, shape, arguments, [&] {
      thread_context.recorder = restore.recorder;
      launch(shape, arguments, queue);
      thread_context.recorder = nullptr;
    });
  }
  Queue& on_queue = queue != nullptr ? *queue : current_queue(where);
  QueueCore& core = on_queue.core();
  Recorder::check("launch", core);
  OpenDevice& device = core.device();
  OnDevice& on = s.on(device);
  LoadedKernel& loaded = KernelAccess::loaded(s, device, on, variant);

  constexpr std::size_t few = 24;                            // the capacity of LaunchArguments
  alignas(Argument) std::byte room[few * sizeof(Argument)];  // only the used elements are constructed
  std::vector<Argument> many(arguments.size() > few ? arguments.size() : 0);
  auto* const inside = reinterpret_cast<Argument*>(room);
  if (many.empty()) std::uninitialized_default_construct_n(inside, arguments.size());
  const std::span<Argument> given = many.empty() ? std::span(inside, arguments.size()) : std::span(many);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const LaunchArgument& a = arguments[i];
    if (!a.view.storage) {
      given[i].bits = a.bits;
      continue;
    }
    given[i].allocation = &a.view.storage->allocation();
    given[i].byte_offset = a.view.byte_offset;
    given[i].elements = a.view.elements;
    if (s.facts.writes[i])
      a.view.storage->before_write(on_queue);
    else
      a.view.storage->before_read(on_queue);
  }
  if (traced()) [[unlikely]] {
    trace_line(fmt::format("launch {} on {} {} {} x {} x {}{}{}{}", fn.name, to_string(device.device),
                           fn.kind == ir::KernelKind::map ? "threads" : "blocks", shape[0], shape[1], shape[2],
                           variant.noalias ? "" : " plain", variant.index64 ? " index64" : "",
                           variant.aligned ? "" : " unaligned"));
  }
  put(core, loaded, *on.counter, shape, given, [&](const QueueUse& use) {
    // Reads come first. If a storage is both read and written, the write replaces the read.
    for (const std::uint32_t p : s.facts.buffers)
      if (!s.facts.writes[p]) arguments[p].view.storage->after_read(use);
    for (const std::uint32_t p : s.facts.buffers)
      if (s.facts.writes[p]) arguments[p].view.storage->after_write(use);
  });
  if (Recorder* const recorder = Recorder::of_this_thread()) [[unlikely]]
    recorder->launched(*this, loaded, *on.counter, variant.index64, shape, arguments, given, s.facts);
}

PreparedLaunch::PreparedLaunch(const Kernel& kernel, const std::array<std::uint64_t, 3>& shape,
                               std::span<const LaunchArgument> arguments) {
  auto& s = KernelAccess::state(kernel, "launch");
  if (arguments.size() > most_arguments || s.facts.buffers.empty() || s.facts.buffers.size() > most_buffers) return;
  if (!s.facts.vectors.empty()) return;  // other buffers may need another variant
  where_ = arguments[s.facts.buffers.front()].view.storage->device();
  OpenDevice& device = open_device(where_);
  OnDevice& on = s.on(device);
  const bool wide = needs_index64(s.function, shape, check_arguments(s.function, arguments));
  const bool noalias = !check_overlap(s.function, s.facts, arguments);
  kernel_ = on.loaded[number_of({.noalias = noalias, .index64 = wide})].load(std::memory_order_acquire);
  counter_ = on.counter, shape_ = shape;
  for (const std::uint32_t p : s.facts.buffers)
    places_[buffers_++] = {p, s.facts.writes[p] != 0, arguments[p].view.elements};
  for (const LaunchArgument& a : arguments) bits_[arguments_++] = a.view.storage ? 0 : a.bits;
  if (kernel_ != nullptr) device_ = &device;  // otherwise, another variant was launched
}

QueueCore* PreparedLaunch::ready() const {
  const ThreadContext& here = thread_context;
  if (device_ == nullptr || here.launch_interceptor != nullptr || here.recorder != nullptr ||
      here.placement != nullptr || traced())
    return nullptr;
  QueueCore& core = current_queue(where_).core();
  return &core.device() == device_ ? &core : nullptr;
}

std::shared_ptr<Storage> PreparedLaunch::allocate(std::size_t bytes) const { return device_->pool.allocate(bytes, {}); }

void PreparedLaunch::operator()(QueueCore& queue, std::span<const Buffer> buffers,
                                std::span<const std::uint64_t> scalars) const {
  alignas(Argument) std::byte room[most_arguments * sizeof(Argument)];  // only the used elements are constructed
  auto* const given = reinterpret_cast<Argument*>(room);
  for (std::size_t i = 0; i < arguments_; ++i) std::construct_at(given + i)->bits = bits_[i];
  for (std::size_t i = 0; i < scalars.size(); ++i)
    given[places_[buffers.size() - 1].argument + 1 + i].bits = scalars[i];
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (places_[i].written) buffers[i].storage->flush_readers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    Argument& a = given[places_[i].argument];
    a.allocation = &buffers[i].storage->allocation(), a.byte_offset = buffers[i].byte_offset;
    a.elements = places_[i].elements;
    if (places_[i].written)
      buffers[i].storage->before_write(queue);
    else
      buffers[i].storage->before_read(queue);
  }
  put(queue, *kernel_, *counter_, shape_, {given, arguments_}, [&](const QueueUse& use) {
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (!places_[i].written) buffers[i].storage->after_read(use);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (places_[i].written) buffers[i].storage->after_write(use);
  });
}

constinit std::atomic<LaunchTracer*> LaunchTracer::instance = nullptr;

void Kernel::prepare(Device device, Variant variant) const {
  State* const s = &KernelAccess::state(*this, "prepare");
  KernelAccess::compile(open_device(device), variant, std::span(&s, 1));
}

std::string Kernel::source(Device device, Variant variant) const {
  State& s = KernelAccess::state(*this, "source");
  OpenDevice& open = open_device(device);
  return KernelAccess::loaded(s, open, s.on(open), variant).source();
}

void prepare(Device device, std::span<const Kernel> kernels) { KernelAccess::prepare(open_device(device), kernels); }

}  // namespace tessera
