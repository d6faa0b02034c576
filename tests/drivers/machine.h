// SPDX-License-Identifier: Apache-2.0
// The machine behind every fake driver. It has devices with memory, streams that are implemented as threads, events,
// modules and launches. It checks all calls against the rules of the real APIs and records violations ("breaches"). It
// can also inject faults. Device addresses are in a range that is never mapped, so host code that dereferences a device
// pointer crashes, as on real hardware. Vector clocks track the order of work. If two accesses to the same bytes are
// not ordered by an event, a stream or a wait on the host, and one of them is a write, this is reported as a data race,
// independent of the actual timing.
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

/// Error codes that are the same in CUresult and hipError_t.
using Code = int;
inline constexpr Code ok = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, invalid_configuration = 9,
                      no_device = 100, invalid_device = 101, invalid_image = 200, invalid_context = 201,
                      no_binary_for_gpu = 209, invalid_ptx = 218, unsupported_ptx = 222, invalid_handle = 400,
                      not_found = 500, not_ready = 600, illegal_address = 700, launch_out_of_resources = 701,
                      peer_already_enabled = 704, peer_not_enabled = 705, misaligned_address = 716, launch_failed = 719,
                      not_supported = 801, capture_unsupported = 900, capture_invalidated = 901,
                      capture_unmatched = 903, capture_implicit = 906, capture_wrong_thread = 908, illegal_state = 401,
                      unknown_error = 999;

/// A vector clock: for each stream, how much of its work happened before some point.
using Clock = std::map<std::uint32_t, std::uint64_t>;

struct Context;
struct Stream;
struct Module;

struct Use {  ///< an access of queued work to a range of an allocation
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  std::uint64_t begin = 0, end = 0;
  bool write = false;
  std::string what;
  const Context* context = nullptr;  ///< context of the work; if it has failed, the work has ended
};

/// An allocation. Records of freed allocations are kept, so that a use after free can be detected.
struct Memory {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  Context* context = nullptr;
  bool host = false, live = true;
  std::unique_ptr<std::byte[]> backing;  ///< the bytes of device memory
  std::byte* data = nullptr;
  int queued = 0;  ///< number of queued work items that access it
  std::vector<Use> uses;
  ~Memory();
};
using MemoryPointer = std::shared_ptr<Memory>;

struct Event;
/// The order of a work item, for APIs that pass events with each command.
struct Order {
  std::vector<Event*> waits;
  Event* signal = nullptr;
  bool barrier = false;
  std::vector<std::uint32_t> argument_bytes;  ///< argument sizes of a launch, if the API passes them to the driver
};

struct Touch {  ///< an access of a work item
  MemoryPointer memory;
  std::uint64_t begin = 0, end = 0;
  bool write = false;
};

struct Work {
  std::string what;
  std::function<Code()> run;  ///< a nonzero code becomes the error of the device
  std::vector<Touch> touches;
  Order order;
  std::vector<std::pair<Stream*, std::uint64_t>> after;
  std::uint64_t sequence = 0;
  Clock clock;
  Code late = ok;                    ///< if not ok, the work fails with this code, and only waiting calls report it
  Module* module = nullptr;          ///< launches: the module of the kernel
  std::uint64_t kernels_before = 0;  ///< number of kernels that were queued earlier on streams of the device
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
  Executable* closed = nullptr;  ///< for a closed list: its result
  Graph* capture = nullptr;      ///< if not null, work is captured in this graph instead of being queued
  bool spoilt = false;           ///< an illegal call was made during the capture, so it fails
  std::uint64_t capturer = 0;    ///< the thread that started the capture
  int capture_mode = 0;          ///< 0 global, 1 thread-local, 2 relaxed
  std::uint32_t id = 0;
  bool null = false, blocking = true;
  bool ordered = true;  ///< false: only barriers and events order the work
  std::deque<Work> work;
  bool busy = false;
  std::uint64_t submitted = 0, completed = 0;
  Clock clock;
  std::mt19937_64 random;
};
struct Event : Handle {
  Stream* stream = nullptr;  ///< null if never recorded
  std::uint64_t sequence = 0;
  Clock clock;
  bool timing = true;
  bool blocking = false;  ///< waits for it do not occupy a core
};
struct Function : Handle {
  Module* module = nullptr;
  std::string entry;
  int parameters = -1;  ///< as counted by the fake compiler; -1 if unknown
  std::uint32_t max_dynamic_shared = 48 << 10;
};
struct Module : Handle {
  std::map<std::string, int> entries;
  std::map<std::string, Function*> functions;
  std::string object;  ///< file with the kernels compiled for the host, or empty
  Clock used;          ///< last launch on each stream
};
struct Context : Handle {
  int device = 0;
  int retained = 0;
  Stream* null_stream = nullptr;
  std::vector<Stream*> streams;
  Code sticky = ok;    ///< an error that all later calls return
  Code deferred = ok;  ///< an error that only waiting calls return
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
  std::vector<Node*> nodes;  ///< the node of each work item
  std::vector<Work> work;
  Clock used;  ///< last launch on each stream
};

/// The limits of a GPU, in the units of its API.
struct Limits {
  std::uint32_t max_threads = 1024;
  std::array<std::uint32_t, 3> max_block = {1024, 1024, 64};
  std::array<std::uint64_t, 3> max_grid = {2147483647, 65535, 65535};
  std::uint32_t shared = 48 << 10;        ///< shared memory of a block by default, in bytes
  std::uint32_t shared_optin = 99 << 10;  ///< maximum after the function's attribute was raised
  std::uint32_t warp = 32;
  std::uint32_t parameter_bytes = 4096;
};

struct Dimensions {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// A launch for APIs that bind arguments differently and run kernels from their text.
struct DirectLaunch {
  KernelFacts facts;
  std::vector<KernelArgument> own;  ///< storage of `facts.arguments` for kernels that the test did not emit
  /// Runs the kernel. `bits` contains the arguments, with host addresses. Returns an error message, or an empty string
  /// on success.
  std::function<std::string(const KernelFacts& facts, std::vector<std::uint64_t>& bits)> run;
};

class Machine {
 public:
  static Machine& get();
  /// Returns the limits of a device. The static initialiser of each fake library sets this function.
  std::function<Limits(int device)> limits = [](int) { return Limits{}; };
  bool opencl = false;          ///< kernels have the argument list of OpenCL C
  bool pageable_later = false;  ///< copies access pageable host memory when they run, like pinned memory

  const Settings& settings() const { return settings_; }
  const Faults& faults() const { return faults_; }

  // Every API call starts with one of these functions. `call` is its name in reports of violations.
  Code initialise(const char* call);
  Code enter(const char* call, bool counted = true);
  Code enter(const char* call, Context* context, bool counted = true);  ///< also checks that the context has not failed
  /// Records a rule violation and returns `code`.
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
  /// Looks up a stream handle. A null handle is the context's default stream. Returns null and sets `code` if the
  /// handle is invalid.
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

  /// Returns true if a device can access the memory of another one. enable_peer() enables this access for a context.
  bool can_reach(int device, int peer);
  Code enable_peer(Context& context, int peer);
  /// Copies from the memory of another device. Peer access must be enabled. Without it, real drivers silently copy
  /// through host memory, so this is reported as a violation.
  Code copy_from_peer(Context& context, std::uint64_t to, const Context* target, std::uint64_t from,
                      const Context* source, std::size_t bytes, Stream& stream, const Order& order = {});
  enum class Copy : std::uint8_t { to_device, to_host, on_device, any };
  /// If `empty` is true, reports success but copies nothing.
  Code copy(Context& context, std::uint64_t to, std::uint64_t from, std::size_t bytes, Copy direction, Stream& stream,
            bool waits, const Order& order = {}, bool empty = false);
  Code fill(Context& context, std::uint64_t to, std::uint64_t value, std::size_t unit, std::size_t count,
            Stream& stream, bool waits, const Order& order = {});

  Code load(Context& context, const std::map<std::string, int>& entries, Module** module,
            const std::string& object = {});
  Code unload(Context* context, Module* module);  ///< a null context means any device
  Code function(Context& context, Module* module, const char* entry, Function** function);
  Function* function_of(void* handle, Code* code);
  Code raise_shared(Function& function, int bytes);
  Code launch(Context& context, Function& function, Dimensions grid, Dimensions block, std::uint32_t shared_bytes,
              Stream& stream, void** parameters, void** extra, const Order& order = {},
              std::shared_ptr<DirectLaunch> direct = nullptr);
  /// Returns true if the test process has emitted the kernel.
  bool facts_of(const std::string& entry, KernelFacts* facts);

  // Graphs (graphs.cpp).
  Code begin_capture(Stream& stream, int mode);
  Code exchange_capture_mode(int* mode);  ///< sets and returns the mode of this thread
  Code begin_list(Stream& stream);        ///< for Level Zero: any thread may append commands; ends with close_list()
  Code close_list(Stream& stream);
  Code end_capture(Stream& stream, Graph** graph);
  Code newest_node(Stream& stream, Node** node);  ///< sets null if the capture is still empty
  Code instantiate(Context& context, void* graph, Executable** executable);
  Code destroy_graph(void* graph);
  Code destroy_executable(void* executable);
  Code launch_graph(Context& context, void* executable, Stream& stream);
  Code set_kernel_node(Context& context, void* executable, void* node, Function& function, Dimensions grid,
                       Dimensions block, std::uint32_t shared_bytes, void** parameters, void** extra);
  /// Checks a call that is illegal while this thread captures a stream, or while another thread captures in global mode
  /// and this thread is not relaxed. Returns ok or an error. An error also invalidates the capture.
  Code outside_of_capture();

  /// Queues a work item that only waits for events, acts as a barrier, or signals an event.
  Code mark(Stream& stream, const Order& order);
  Code reset(Event& event);
  /// Queues work of another library on a stream of this driver (see outside.h).
  Code outside(Stream& stream, const char* what, const OutsideTouch* touches, int count,
               void (*run)(void* state, void* const* data), void* state);
  bool is_pinned(std::uint64_t address);
  Context* owner(std::uint64_t address);  ///< context of the device memory at this address, or null

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
  std::vector<Stream*> global_captures_;  ///< streams that are captured in global mode
  std::condition_variable changed_;
  struct Turns {
    std::mutex lock;
    std::condition_variable changed;
    std::uint64_t taken = 0, done = 0;
  };
  std::array<Turns, 16> turns_;  ///< runs kernels one at a time on devices with a kernel duration
  bool initialised_ = false, held_ = false;
  const Resolver* resolver_ = nullptr;
  std::atomic<bool> execute_ = true;    ///< false: calls succeed but do nothing
  std::atomic<bool> counting_ = false;  ///< true: calls are counted by name
  std::vector<std::string> breaches_;
  std::map<void*, Handle*> handles_;  ///< all handles that were created, including destroyed ones
  std::map<std::uint64_t, MemoryPointer> memory_, graves_;
  std::vector<Context*> primaries_;
  std::vector<std::uint64_t> used_, arena_, next_;  ///< indexed by device
  Clock host_clock_;
  std::uint32_t streams_ = 0;
  std::map<std::string, std::uint64_t> counts_;
  std::map<int, std::uint64_t> operations_;
  struct Kernels {
    std::uint64_t queued = 0, done = 0;
  };
  std::map<int, Kernels> kernels_;  ///< indexed by device
};

/// Merges `other` into `clock`.
void merge(Clock& clock, const Clock& other);

}  // namespace tessera::fake
