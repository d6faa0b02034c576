// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_driver.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <random>
#include <system_error>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/ir/node.h"

namespace tessera::test {
namespace {

std::mutex bodies_lock;
std::map<std::string, Body>& bodies() {
  static auto* the_bodies = new std::map<std::string, Body>;
  return *the_bodies;
}

/// Computes the same as the verification kernel of the device layer.
void verify_body(const Launch& launch, bool wrongly) {
  const float* x = launch.arguments.at(0).as<float>();
  float* y = launch.arguments.at(1).as<float>();
  const std::uint64_t n = launch.arguments[0].elements;
  for (std::uint64_t block = 0; block < launch.shape[0]; ++block) {
    for (std::uint64_t t = 0; t < 64; ++t) {
      const std::uint64_t i = block * 64 + t, from = block * 64 + 63 - t;
      if (i < n) y[i] = (from < n ? x[from] : 0.0f) * 2.0f + (wrongly && i == 700 ? 2.0f : 1.0f);
    }
  }
}

/// Memory with guard bytes on both sides. Freed blocks are kept, so that every use after free is detected.
struct Memory {
  static constexpr std::size_t fence = 64;
  std::vector<std::byte> bytes;
  std::size_t size;
  bool live = true;
  explicit Memory(std::size_t n) : bytes(n + 2 * fence, std::byte{0xA5}), size(n) {
    std::fill_n(bytes.begin(), fence, std::byte{0xFE});
    std::fill_n(bytes.end() - static_cast<std::ptrdiff_t>(fence), fence, std::byte{0xFE});
  }
  std::byte* data() { return bytes.data() + fence; }
  bool fences_whole() const {
    for (std::size_t i = 0; i < fence; ++i)
      if (bytes[i] != std::byte{0xFE} || bytes[bytes.size() - 1 - i] != std::byte{0xFE}) return false;
    return true;
  }
};

/// An error of queued work. Each waiting thread gets a new exception object, because ThreadSanitizer does not see the
/// reference counts of shared exceptions, which are in the runtime library.
struct Fault {
  bool lost = false;  ///< true: a DeviceLost; false: a KernelError
  std::string text;
  [[noreturn]] void tell() const {
    if (lost) fail<DeviceLost>({.wrong = text});
    fail<KernelError>({.wrong = text});
  }
};

/// The state is shared, because the event may be destroyed while a queue still waits for it.
struct EventState {
  std::mutex lock;
  std::condition_variable changed;
  bool over = false;
  std::optional<Fault> error;
  void wait() {
    std::unique_lock g(lock);
    changed.wait(g, [&] { return over; });
  }
  void set(std::optional<Fault> e) {
    {
      std::lock_guard g(lock);
      over = true;
      error = std::move(e);
    }
    changed.notify_all();
  }
};
struct Event : DriverEvent {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
  bool done() override {
    std::lock_guard g(state->lock);
    return state->over;
  }
  void wait() override {
    state->wait();
    std::lock_guard g(state->lock);
    if (state->error) state->error->tell();
  }
};

struct Loaded : LoadedKernel {
  std::shared_ptr<Behaviour> behaviour;
  std::string name, text;
  std::atomic<bool> alive = true;
  Loaded(std::shared_ptr<Behaviour> b, const ir::Function& fn)
      : behaviour(std::move(b)), name(fn.name), text(ir::to_text(fn)) {
    ++behaviour->live_kernels;
  }
  ~Loaded() override {
    alive = false;
    --behaviour->live_kernels;
  }
  std::string source() const override { return text; }
};

/// Simulates the thread_local objects of a driver.
constinit thread_local bool objects_are_gone = false;
struct ThreadObject {
  bool used = false;
  ~ThreadObject() { objects_are_gone = true; }
};
thread_local ThreadObject thread_object;

/// Must be called at the start of every driver function.
void enter(Behaviour& behaviour) {
  if (objects_are_gone)
    behaviour.note_misuse("the driver was called on a thread whose thread_local objects were destroyed");
  else
    thread_object.used = true;
}

class TestQueue : public DriverQueue {
 public:
  explicit TestQueue(std::shared_ptr<Behaviour> behaviour)
      : behaviour_(std::move(behaviour)), immediate_(behaviour_->immediate), random_(test_seed() ^ ++queues_) {
    if (!immediate_) thread_ = std::thread([this] { run(); });
  }
  ~TestQueue() override {
    {
      std::lock_guard g(lock_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  bool immediate() const override { return immediate_; }

  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override {
    std::vector<std::byte> staged(bytes);
    std::memcpy(staged.data(), from, bytes);
    put([this, to, offset, staged = std::move(staged)] {
      std::memcpy(at(to, offset, staged.size()), staged.data(), staged.size());
    });
  }
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override {
    put([this, to, from, offset, bytes] { std::memcpy(to, at(from, offset, bytes), bytes); });
    finish();
  }
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override {
    put([=, this] { std::memmove(at(to, to_offset, bytes), at(from, from_offset, bytes), bytes); });
  }
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override {
    std::vector<std::byte> p(pattern.begin(), pattern.end());
    put([this, to, offset, bytes, p = std::move(p)] {
      std::byte* target = at(to, offset, bytes);
      for (std::size_t i = 0; i < bytes; ++i) target[i] = p[i % p.size()];
    });
  }
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    auto& loaded = static_cast<Loaded&>(kernel);
    if (behaviour_->fail_launch)
      fail<KernelError>({.operation = "launch " + loaded.name, .wrong = "the test driver refuses launches"});
    std::vector<Argument> kept(arguments.begin(), arguments.end());
    std::vector<Allocation> allocations;  // copied, because the caller's storages may be destroyed when the work runs
    for (const Argument& a : arguments) allocations.push_back(a.allocation != nullptr ? *a.allocation : Allocation{});
    put([this, &loaded, shape, kept = std::move(kept), allocations = std::move(allocations)] {
      if (!loaded.alive) behaviour_->note_misuse("a kernel was destroyed before its launch ran");
      if (behaviour_->fail_work) {
        ++behaviour_->failed_work;
        fail<KernelError>({.operation = loaded.name, .wrong = "the work failed on purpose"});
      }
      Launch l{shape, {}};
      for (std::size_t i = 0; i < kept.size(); ++i) {
        Launch::Argument a{nullptr, kept[i].elements, kept[i].bits};
        if (allocations[i].handle != nullptr) a.bytes = at(allocations[i], kept[i].byte_offset, 0);
        l.arguments.push_back(a);
      }
      if (loaded.name == "tessera_verify") return verify_body(l, behaviour_->compute_wrongly);
      Body body;
      {
        std::lock_guard g(bodies_lock);
        if (auto it = bodies().find(loaded.name); it != bodies().end()) body = it->second;
      }
      if (body)
        body(l);
      else
        behaviour_->note_misuse("no body for kernel " + loaded.name);
    });
    if (behaviour_->fail_after_launch)
      fail<KernelError>({.operation = "launch " + loaded.name, .wrong = "the test driver failed halfway"});
  }
  std::shared_ptr<DriverEvent> record() override {
    if (immediate_) return nullptr;
    ++behaviour_->records;
    if (behaviour_->fail_record)
      fail<OutOfMemory>({.operation = "record", .wrong = "the test driver has no event left"});
    auto event = std::make_shared<Event>();
    put([this, state = event->state] { state->set(error()); }, true);
    return event;
  }
  void wait(DriverEvent& event) override {
    // Threads that use the other queue get its errors. This queue only waits until the work has ended.
    put([state = static_cast<Event&>(event).state] { state->wait(); }, true);
  }
  void with_native(const std::function<void(void*)>& use) override { use(this); }
  void put_native(std::function<void()> work) { put(std::move(work)); }
  void finish() override {
    enter(*behaviour_);
    std::unique_lock g(lock_);
    idle_.wait(g, [&] { return work_.empty() && !busy_; });
    if (const auto error = std::exchange(error_, std::nullopt)) error->tell();
  }

 private:
  struct Work {
    std::function<void()> run;
    bool always;  // true if the event is signalled even if earlier work failed
  };
  void put(std::function<void()> f, bool always = false) {
    enter(*behaviour_);
    if (immediate_) return f();
    {
      std::lock_guard g(lock_);
      work_.push_back({std::move(f), always});
    }
    changed_.notify_all();
  }
  std::optional<Fault> error() {
    std::lock_guard g(lock_);
    return error_;
  }
  std::byte* at(const Allocation& allocation, std::size_t offset, std::size_t bytes) {
    auto* memory = static_cast<Memory*>(allocation.handle);
    if (!memory->live) behaviour_->note_misuse("memory was used after it was freed");
    if (offset + bytes > memory->size) behaviour_->note_misuse("an access outside of its allocation");
    if (!memory->fences_whole()) behaviour_->note_misuse("a kernel wrote outside of its allocation");
    return memory->data() + offset;
  }
  void run() {
    while (true) {
      Work work;
      {
        std::unique_lock g(lock_);
        changed_.wait(g, [&] { return stopping_ || !work_.empty(); });
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
        busy_ = true;
      }
      if (behaviour_->held) {
        std::unique_lock g(behaviour_->lock);
        behaviour_->changed.wait(g, [&] { return !behaviour_->held; });
      }
      if (const int most = behaviour_->max_delay_us; most > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % static_cast<unsigned>(most)));
      try {
        if (behaviour_->lose && !work.always)
          fail<DeviceLost>({.operation = "test driver", .wrong = "an illegal address was accessed"});
        if (work.always || !error()) work.run();
      } catch (const std::exception& e) {
        std::lock_guard g(lock_);
        if (!error_) error_ = Fault{dynamic_cast<const DeviceLost*>(&e) != nullptr, e.what()};
      }
      work = {};
      {
        std::lock_guard g(lock_);
        busy_ = false;
      }
      idle_.notify_all();
    }
  }

  static inline std::atomic<std::uint64_t> queues_ = 0;
  std::shared_ptr<Behaviour> behaviour_;
  const bool immediate_;
  std::mt19937_64 random_;
  std::mutex lock_;
  std::condition_variable changed_, idle_;
  std::deque<Work> work_;
  bool stopping_ = false, busy_ = false;
  std::optional<Fault> error_;
  std::thread thread_;
};

/// A wrapped queue. It does not own the driver's queue.
class Borrowed : public DriverQueue {
 public:
  explicit Borrowed(TestQueue& of) : of_(of) {}
  void upload(const Allocation& to, std::size_t offset, const void* from, std::size_t bytes) override {
    of_.upload(to, offset, from, bytes);
  }
  void download(void* to, const Allocation& from, std::size_t offset, std::size_t bytes) override {
    of_.download(to, from, offset, bytes);
  }
  void copy(const Allocation& to, std::size_t to_offset, const Allocation& from, std::size_t from_offset,
            std::size_t bytes) override {
    of_.copy(to, to_offset, from, from_offset, bytes);
  }
  void fill(const Allocation& to, std::size_t offset, std::size_t bytes, std::span<const std::byte> pattern) override {
    of_.fill(to, offset, bytes, pattern);
  }
  void launch(LoadedKernel& kernel, std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    of_.launch(kernel, shape, arguments);
  }
  std::shared_ptr<DriverEvent> record() override { return of_.record(); }
  void wait(DriverEvent& event) override { of_.wait(event); }
  void finish() override { of_.finish(); }
  void with_native(const std::function<void(void*)>& use) override { of_.with_native(use); }

 private:
  TestQueue& of_;
};

class TestDevice : public DriverDevice {
 public:
  TestDevice(DeviceInfo info, std::shared_ptr<Behaviour> b) : info_(std::move(info)), behaviour_(std::move(b)) {}
  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory() const override { return info_.total_memory - behaviour_->live_bytes; }
  Allocation allocate(std::size_t bytes, MemoryKind kind) override {
    enter(*behaviour_);
    if (behaviour_->fail_allocation_in > 0 && --behaviour_->fail_allocation_in == 0) {
      if (--behaviour_->failing_allocations > 0)
        behaviour_->fail_allocation_in = 1;
      else
        behaviour_->failing_allocations = 1;
      fail<OutOfMemory>({.operation = "allocate", .wrong = "the test driver has no memory"});
    }
    auto memory = std::make_unique<Memory>(bytes);
    ++behaviour_->allocations;
    ++behaviour_->live_allocations;
    behaviour_->live_bytes += bytes;
    Allocation a{memory.get(), behaviour_->host_visible || kind == MemoryKind::pinned ? memory->data() : nullptr,
                 bytes};
    std::lock_guard g(lock_);
    memories_.push_back(std::move(memory));
    return a;
  }
  void release(const Allocation& allocation) noexcept override {
    enter(*behaviour_);
    auto* memory = static_cast<Memory*>(allocation.handle);
    if (!memory->live) behaviour_->note_misuse("memory was freed twice");
    memory->live = false;
    if (!memory->fences_whole()) behaviour_->note_misuse("a kernel wrote outside of its allocation");
    std::fill_n(memory->data(), memory->size, std::byte{0xDB});
    --behaviour_->live_allocations;
    behaviour_->live_bytes -= memory->size;
  }
  std::unique_ptr<DriverQueue> make_queue() override { return std::make_unique<TestQueue>(behaviour_); }
  std::unique_ptr<DriverQueue> wrap_queue(void* native) override {
    return std::make_unique<Borrowed>(*static_cast<TestQueue*>(native));
  }
  std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override {
    enter(*behaviour_);
    ++behaviour_->compile_calls;
    if (behaviour_->shortage == 1) throw std::bad_alloc();
    if (behaviour_->shortage == 2) throw std::system_error(EAGAIN, std::generic_category(), "thread");
    std::vector<std::unique_ptr<LoadedKernel>> loaded;
    for (const CompileRequest& r : requests) {
      if (behaviour_->fail_compile) fail<KernelError>({.wrong = "line 3: unexpected token"});
      ++behaviour_->compiled;
      loaded.push_back(std::make_unique<Loaded>(behaviour_, *r.function));
      std::lock_guard g(behaviour_->lock);
      behaviour_->functions.push_back(*r.function);
      behaviour_->variants.push_back(r.variant);
    }
    return loaded;
  }

 private:
  DeviceInfo info_;
  std::shared_ptr<Behaviour> behaviour_;
  std::mutex lock_;
  std::vector<std::unique_ptr<Memory>> memories_;
};

}  // namespace

std::vector<std::string> Behaviour::misuse() {
  std::lock_guard g(lock);
  return seen;
}
void Behaviour::note_misuse(std::string text) {
  std::lock_guard g(lock);
  seen.push_back(std::move(text));
}

DeviceInfo& TestDriver::add_device(DeviceKind kind, std::uint64_t total_memory) {
  DeviceInfo info;
  info.device = {backend_, static_cast<int>(devices_.size())};
  info.name = "test device " + std::to_string(devices_.size());
  info.vendor = "test";
  info.kind = kind;
  info.total_memory = total_memory;
  devices_.push_back(std::move(info));
  behaviours_.push_back(std::make_shared<Behaviour>());
  return devices_.back();
}

BackendReport TestDriver::enumerate() {
  ++enumerations;
  std::this_thread::sleep_for(std::chrono::microseconds(slow_us));
  BackendReport report{.backend = backend_,
                       .state = DeviceState::enumerated,
                       .reason = "no kernel has run on it yet",
                       .remedy = "Run one",
                       .devices = devices_};
  if (!fail_enumerate.empty()) {
    report.devices.clear();
    report.state = DeviceState::supported;
    report.reason = fail_enumerate;
    report.remedy = "Install the test driver";
  }
  return report;
}

std::unique_ptr<DriverDevice> TestDriver::open(int index) {
  auto b = behaviour(index);
  std::this_thread::sleep_for(std::chrono::microseconds(slow_us));
  if (b->fail_open) fail<DeviceError>({.operation = "open", .wrong = "the test device does not open"});
  ++b->opened;
  return std::make_unique<TestDevice>(devices_.at(static_cast<std::size_t>(index)), b);
}

void put_native(void* native, std::function<void()> work) {
  static_cast<TestQueue*>(native)->put_native(std::move(work));
}

void set_body(const std::string& kernel, Body body) {
  std::lock_guard g(bodies_lock);
  bodies()[kernel] = std::move(body);
}

}  // namespace tessera::test
