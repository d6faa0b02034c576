// SPDX-License-Identifier: Apache-2.0
// The machine behind every fake driver: devices with their own memory, streams implemented as threads, events, modules
// and launches. It checks every call against the rules of the real APIs, records each breach, and can be made to fail.
// Device addresses are in a range that is never mapped: only the machine knows the bytes behind them, so host code that
// dereferences a device pointer crashes, as on real hardware. Order is tracked with vector clocks: two uses of the same
// bytes, at least one of them a write, that are not ordered by an event, a stream or a host wait are a breach, whatever
// the actual timing.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/drivers/faults.h"
#include "tests/drivers/kernel_abi.h"
#include "tests/drivers/outside.h"

namespace tessera::fake {

/// Error codes shared by CUresult and hipError_t.
using Code = int;
inline constexpr Code ok = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, invalid_configuration = 9,
                      no_device = 100, invalid_device = 101, invalid_image = 200, invalid_context = 201,
                      no_binary_for_gpu = 209, invalid_ptx = 218, unsupported_ptx = 222, invalid_handle = 400,
                      not_found = 500, not_ready = 600, illegal_address = 700, launch_out_of_resources = 701,
                      peer_already_enabled = 704, peer_not_enabled = 705, misaligned_address = 716, launch_failed = 719,
                      not_supported = 801, capture_unsupported = 900, capture_invalidated = 901,
                      capture_unmatched = 903, capture_implicit = 906, capture_wrong_thread = 908, illegal_state = 401,
                      unknown_error = 999;

/// How much of each stream's work happened before a point.
using Clock = std::map<std::uint32_t, std::uint64_t>;

struct Context;
struct Stream;
struct Module;

struct Use {  ///< one access of queued work to bytes of an allocation
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  std::uint64_t begin = 0, end = 0;
  bool write = false;
  std::string what;
  const Context* context = nullptr;  ///< whose work it was; if that context has failed, the work has ended
};

/// One allocation. Freed allocations are remembered, so that a late use can be reported by name.
struct Memory {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  Context* context = nullptr;
  bool host = false, live = true;
  std::unique_ptr<std::byte[]> backing;  ///< for device memory
  std::byte* data = nullptr;
  int queued = 0;  ///< number of queued work items that will access it
  std::vector<Use> uses;
  ~Memory();
};
using MemoryPointer = std::shared_ptr<Memory>;

struct Event;
/// Events around a work item, for APIs that pass them with it, and whether all earlier work must finish first.
struct Order {
  std::vector<Event*> waits;
  Event* signal = nullptr;
  bool barrier = false;
  std::vector<std::uint32_t> argument_bytes;  ///< of a launch, where the API passes them to the driver
};

struct Touch {  ///< an access that a work item will make
  MemoryPointer memory;
  std::uint64_t begin = 0, end = 0;
  bool write = false;
};

struct Work {
  std::string what;
  std::function<Code()> run;  ///< a nonzero code becomes the device's error
  std::vector<Touch> touches;
  Order order;
  std::vector<std::pair<Stream*, std::uint64_t>> after;
  std::uint64_t sequence = 0;
  Clock clock;
  Code late = ok;                    ///< fails with this code, reported only by calls that wait
  Module* module = nullptr;          ///< for a launch
  std::uint64_t kernels_before = 0;  ///< number of kernels queued before on the device's streams
};

enum class Kind : std::uint8_t { context, stream, event, module, function, graph, node, executable };

struct Handle {
  Kind kind;
  bool live = true;
  Context* context = nullptr;
};

struct Graph;
struct Executable;
struct Stream : Handle {
  Executable* closed = nullptr;  ///< of a list that is written once: its result
  Graph* capture = nullptr;      ///< work is captured here instead of being queued
  bool spoilt = false;           ///< a call that is illegal during capture was made; the capture fails
  std::uint64_t capturer = 0;    ///< the thread that began the capture
  int capture_mode = 0;          ///< 0 global, 1 thread-local, 2 relaxed
  std::uint32_t id = 0;
  bool null = false, blocking = true;
  bool ordered = true;  ///< else only barriers and events order its work
  std::deque<Work> work;
  bool busy = false;
  std::uint64_t submitted = 0, completed = 0;
  Clock clock;
  std::mt19937_64 random;
};
struct Event : Handle {
  Stream* stream = nullptr;  ///< null: never recorded
  std::uint64_t sequence = 0;
  Clock clock;
  bool timing = true;
};
struct Function : Handle {
  Module* module = nullptr;
  std::string entry;
  int parameters = -1;  ///< as counted by the compiler; -1: unknown
  std::uint32_t max_dynamic_shared = 48 << 10;
};
struct Module : Handle {
  std::map<std::string, int> entries;
  std::map<std::string, Function*> functions;
  std::string object;  ///< file with the kernels compiled for the host, if any
  Clock used;          ///< its last launch on each stream
};
struct Context : Handle {
  int device = 0;
  int retained = 0;
  Stream* null_stream = nullptr;
  std::vector<Stream*> streams;
  Code sticky = ok;    ///< returned by every later call
  Code deferred = ok;  ///< returned only by calls that wait
  std::set<int> peers;
};

struct Node : Handle {
  Graph* graph = nullptr;
  Work work;
};
struct Graph : Handle {
  std::vector<Node*> nodes;
};
struct Executable : Handle {
  Graph* graph = nullptr;
  std::vector<Node*> nodes;  ///< the captured node of each work item
  std::vector<Work> work;
  Clock used;  ///< its last launch on each stream
};

/// The capabilities of a kind of GPU, in its API's units.
struct Limits {
  std::uint32_t max_threads = 1024;
  std::array<std::uint32_t, 3> max_block = {1024, 1024, 64};
  std::array<std::uint64_t, 3> max_grid = {2147483647, 65535, 65535};
  std::uint32_t shared = 48 << 10;        ///< by default
  std::uint32_t shared_optin = 99 << 10;  ///< after raising the function's attribute
  std::uint32_t warp = 32;
  std::uint32_t parameter_bytes = 4096;
};

struct Dimensions {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// A launch for an API that binds arguments in its own way and runs kernels from their text.
struct DirectLaunch {
  KernelFacts facts;
  std::vector<KernelArgument> own;  ///< storage of `facts.arguments` for kernels unknown to the test
  /// Receives the arguments' `bits`, with host addresses. Returns an error message; empty on success.
  std::function<std::string(const KernelFacts& facts, std::vector<std::uint64_t>& bits)> run;
};

class Machine {
 public:
  static Machine& get();
  /// The properties of each API's devices. Set by the library's initialiser before anything else.
  std::function<Limits(int device)> limits = [](int) { return Limits{}; };
  bool opencl = false;          ///< kernels use OpenCL C's argument convention
  bool pageable_later = false;  ///< host memory is accessed when a copy runs, pinned or not

  const Settings& settings() const { return settings_; }
  const Faults& faults() const { return faults_; }

  // Each API call begins with one of these; `call` names it in breaches.
  Code initialise(const char* call);
  Code enter(const char* call, bool counted = true);
  Code enter(const char* call, Context* context, bool counted = true);  ///< also checks that the context works
  /// Records a broken rule; returns `code`.
  Code breach(const std::string& text, Code code);

  Context* primary(int device);
  Code retain(int device, Context** context);

  Code allocate(Context& context, std::size_t bytes, std::uint64_t* address);
  Code free(std::uint64_t address);
  Code allocate_host(Context& context, std::size_t bytes, void** address);
  Code free_host(void* address);
  std::uint64_t free_bytes(int device);

  Code create_stream(Context& context, bool blocking, Stream** stream);
  Code destroy(Stream* stream);
  /// Looks up a handle from the API: null is the context's own stream. Returns null and sets `code` if it is invalid.
  Stream* stream_of(Context& context, void* handle, Code* code, bool of_this_context = true);
  Code synchronise(Stream& stream);
  Code synchronise(Context& context);
  Code query(Stream& stream);
  Code create_event(Context& context, bool timing, Event** event);
  Event* event_of(void* handle, Code* code);
  Code destroy(Event* event);
  Code record(Context& context, Event& event, Stream& stream);
  Code wait(Stream& stream, Event& event);
  Code synchronise(Event& event);
  Code query(Event& event);

  /// Whether a device can access another's memory, and enabling that access for the context.
  bool can_reach(int device, int peer);
  Code enable_peer(Context& context, int peer);
  /// Copies from another device's memory, which requires enabled peer access: without it, real drivers silently copy
  /// through host memory, which is a breach here.
  Code copy_from_peer(Context& context, std::uint64_t to, const Context* target, std::uint64_t from,
                      const Context* source, std::size_t bytes, Stream& stream, const Order& order = {});
  enum class Copy : std::uint8_t { to_device, to_host, on_device, any };
  /// `empty`: reports success and moves nothing.
  Code copy(Context& context, std::uint64_t to, std::uint64_t from, std::size_t bytes, Copy direction, Stream& stream,
            bool waits, const Order& order = {}, bool empty = false);
  Code fill(Context& context, std::uint64_t to, std::uint64_t value, std::size_t unit, std::size_t count,
            Stream& stream, bool waits, const Order& order = {});

  Code load(Context& context, const std::map<std::string, int>& entries, Module** module,
            const std::string& object = {});
  Code unload(Context* context, Module* module);  ///< null: any device
  Code function(Context& context, Module* module, const char* entry, Function** function);
  Function* function_of(void* handle, Code* code);
  Code raise_shared(Function& function, int bytes);
  Code launch(Context& context, Function& function, Dimensions grid, Dimensions block, std::uint32_t shared_bytes,
              Stream& stream, void** parameters, void** extra, const Order& order = {},
              std::shared_ptr<DirectLaunch> direct = nullptr);
  /// Whether the test knows the kernel.
  bool facts_of(const std::string& entry, KernelFacts* facts);

  // Graphs (graphs.cpp).
  Code begin_capture(Stream& stream, int mode);
  Code exchange_capture_mode(int* mode);  ///< of this thread
  Code begin_list(Stream& stream);        ///< Level Zero's: any thread may write; ends with close_list
  Code close_list(Stream& stream);
  Code end_capture(Stream& stream, Graph** graph);
  Code newest_node(Stream& stream, Node** node);  ///< null if nothing has been captured yet
  Code instantiate(Context& context, void* graph, Executable** executable);
  Code destroy_graph(void* graph);
  Code destroy_executable(void* executable);
  Code launch_graph(Context& context, void* executable, Stream& stream);
  Code set_kernel_node(Context& context, void* executable, void* node, Function& function, Dimensions grid,
                       Dimensions block, std::uint32_t shared_bytes, void** parameters, void** extra);
  /// Checks a call that is illegal while this thread captures, or while another thread captures in global mode, unless
  /// this thread is relaxed. Returns ok or the error; an error also invalidates the capture.
  Code outside_of_capture();

  /// A work item that only waits, is waited for, or signals.
  Code mark(Stream& stream, const Order& order);
  Code reset(Event& event);
  /// Work of another library on this driver's streams (outside.h).
  Code outside(Stream& stream, const char* what, const OutsideTouch* touches, int count,
               void (*run)(void* state, void* const* data), void* state);
  bool is_pinned(std::uint64_t address);
  Context* owner(std::uint64_t address);  ///< of the device memory at this address; null: none

  // For tests.
  std::vector<std::string> breaches();
  void forget_breaches();
  std::uint64_t live(const std::string& what);
  std::uint64_t count(const std::string& what);
  void hold(bool held);
  void execute(bool really) { execute_ = really; }
  void count_calls(bool wanted) { counting_ = wanted; }
  void set_resolver(const Resolver* resolver);
  void at_exit();

 private:
  Machine();
  Module* module_of(void* handle, Code* code);
  Handle* handle_of(void* handle, Kind kind, Code* code);
  void keep(Handle* handle);
  MemoryPointer find(std::uint64_t address);
  Code range(Context& context, std::uint64_t address, std::size_t bytes, bool write, Touch* touch);
  Code enqueue(Stream& stream, Work work, bool waits);
  Code wait_for(std::unique_lock<std::mutex>& hold, Stream& stream, std::uint64_t sequence, const Clock& clock);
  void check_order(const Stream& stream, const Work& work);
  Code capture(Stream& stream, Work work, bool waits);
  Code outside_of_capture_locked();
  Code prepare_launch(Context& context, Function& function, Dimensions grid, Dimensions block,
                      std::uint32_t shared_bytes, void** parameters, void** extra, const Order& order, Work* work,
                      std::shared_ptr<DirectLaunch> direct = nullptr);
  void serve(Stream& stream);
  Code run(const Work& work, int device);
  bool ready(const Stream& stream) const;
  Code breach_locked(const std::string& text, Code code);
  std::uint64_t place(int device, std::size_t bytes);
  bool address_in_arena(std::uint64_t address) const;
  Code read_arguments(Context& context, const Function& function, const KernelFacts& facts, void** parameters,
                      void** extra, std::vector<std::uint64_t>* values);

  Settings settings_;
  Faults faults_;
  std::mutex lock_;
  std::vector<Stream*> global_captures_;  ///< streams captured in global mode
  std::condition_variable changed_;
  struct Turns {
    std::mutex lock;
    std::condition_variable changed;
    std::uint64_t taken = 0, done = 0;
  };
  std::array<Turns, 16> turns_;  ///< orders kernels on devices with a kernel duration, as they become ready
  bool initialised_ = false, held_ = false;
  const Resolver* resolver_ = nullptr;
  std::atomic<bool> execute_ = true;    ///< false: nothing is queued
  std::atomic<bool> counting_ = false;  ///< counts each call by name
  std::vector<std::string> breaches_;
  std::map<void*, Handle*> handles_;  ///< every handle ever created
  std::map<std::uint64_t, MemoryPointer> memory_, graves_;
  std::vector<Context*> primaries_;
  std::vector<std::uint64_t> used_, arena_, next_;  ///< per device
  Clock host_clock_;
  std::uint32_t streams_ = 0;
  std::map<std::string, std::uint64_t> counts_;
  std::map<int, std::uint64_t> operations_;
  struct Kernels {
    std::uint64_t queued = 0, done = 0;
  };
  std::map<int, Kernels> kernels_;  ///< per device
};

/// Merges `other` into `clock`.
void merge(Clock& clock, const Clock& other);

}  // namespace tessera::fake
