// SPDX-License-Identifier: Apache-2.0
// A fake of the parts of the Objective-C runtime and of Metal that Tessera calls. Messages, values and rules follow
// Apple's documentation. Does not include Tessera's declarations, so that tests detect wrong declarations. Kernels are
// run from their text (text/compile.h). Destroyed objects are kept in memory, so that a use after the last release can
// be reported.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/drivers/image.h"
#include "tests/drivers/machine.h"
#include "tests/drivers/text/compile.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// objc_msgSend jumps to the function pointer at the start of the selector, so the arguments are passed on unchanged. A
// message to nil returns 0.
#if defined(__x86_64__)
asm(R"(
  .text
  .globl objc_msgSend
  .type objc_msgSend, @function
objc_msgSend:
  testq %rdi, %rdi
  jz 1f
  jmp *(%rsi)
1:
  xorl %eax, %eax
  xorl %edx, %edx
  ret
  .size objc_msgSend, . - objc_msgSend
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl objc_msgSend
  .type objc_msgSend, %function
objc_msgSend:
  cbz x0, 1f
  ldr x16, [x1]
  br x16
1:
  mov x1, #0
  ret
  .size objc_msgSend, . - objc_msgSend
)");
#endif

namespace {

using namespace tessera::fake;
namespace text = tessera::text;

constexpr std::size_t most_buffers = 31, most_bytes = 4096;
constexpr std::uint64_t most_threadgroup_memory = 32768;

struct Setup {
  Setup() {
    Machine::get().limits = [](int) {
      const std::uint32_t warp = Machine::get().settings().warp;
      return Limits{.max_block = {1024, 1024, 1024},
                    .max_grid = {0xffffffff, 0xffffffff, 0xffffffff},
                    .shared = most_threadgroup_memory,
                    .shared_optin = most_threadgroup_memory,
                    .warp = warp != 0 ? warp : 32,
                    .parameter_bytes = 1 << 16};
    };
  }
};
Machine& machine() {
  static Setup setup;
  return Machine::get();
}

// Objects.

enum class Class : std::uint8_t {
  meta,
  array,
  string,
  error,
  device,
  options,
  buffer,
  queue,
  event,
  library,
  function,
  pipeline,
  command_buffer,
  compute_encoder,
  blit_encoder
};
constexpr const char* class_names[] = {"a class",
                                       "NSArray",
                                       "NSString",
                                       "NSError",
                                       "MTLDevice",
                                       "MTLCompileOptions",
                                       "MTLBuffer",
                                       "MTLCommandQueue",
                                       "MTLSharedEvent",
                                       "MTLLibrary",
                                       "MTLFunction",
                                       "MTLComputePipelineState",
                                       "MTLCommandBuffer",
                                       "MTLComputeCommandEncoder",
                                       "MTLBlitCommandEncoder"};
const char* name_of(Class c) { return class_names[static_cast<int>(c)]; }

struct Object {
  explicit Object(Class c);
  virtual ~Object() = default;
  virtual void gone() {}  ///< called when the last reference is released; the object is then only kept to detect later
                          ///< uses
  Class kind;
  std::atomic<int> references = 1;
};
std::atomic<int> living[std::size(class_names)];
Object::Object(Class c) : kind(c) { ++living[static_cast<int>(c)]; }

/// Keeps a destroyed object, to detect later uses. The list prevents leak reports of sanitizers.
void bury(Object* o) {
  static std::mutex lock;
  static auto* const all = new std::vector<Object*>;
  const std::lock_guard hold(lock);
  all->push_back(o);
}
void retain(Object* o) {
  if (o != nullptr) ++o->references;
}
void release(Object* o) {
  if (o == nullptr) return;
  const int left = --o->references;
  if (left < 0) machine().breach(std::string(name_of(o->kind)) + " is released more often than retained", ok);
  if (left != 0) return;
  --living[static_cast<int>(o->kind)];
  o->gone();
  bury(o);
}
/// A reference-counted pointer.
template <class T>
struct Kept {
  Kept() = default;
  explicit Kept(T* o) : object(o) { retain(o); }
  Kept(const Kept& other) : Kept(other.object) {}
  Kept& operator=(Kept other) {
    std::swap(object, other.object);
    return *this;
  }
  ~Kept() { release(object); }
  T* operator->() const { return object; }
  explicit operator bool() const { return object != nullptr; }
  T* object = nullptr;
};

thread_local std::vector<std::vector<Object*>>* pools = nullptr;
/// Returns the pools of a new thread. They are never destroyed, because destructors of static objects may use them.
std::vector<std::vector<Object*>>* pools_of_a_thread() {
  static std::mutex lock;
  static auto* const all = new std::deque<std::vector<std::vector<Object*>>>;
  const std::lock_guard hold(lock);
  return &all->emplace_back();
}
/// Adds the object to the innermost pool, which releases it.
template <class T>
T* autorelease(T* o) {
  if (o == nullptr) return o;
  if (pools == nullptr || pools->empty())
    machine().breach(std::string("there is no autorelease pool, so ") + name_of(o->kind) + " leaks", ok);
  else
    pools->back().push_back(o);
  return o;
}

struct Meta : Object {
  explicit Meta(std::string n) : Object(Class::meta), name(std::move(n)) {}
  std::string name;
};
struct String : Object {
  explicit String(std::string t) : Object(Class::string), characters(std::move(t)) {}
  std::string characters;
};
struct Error : Object {
  Error(std::int64_t c, const std::string& t) : Object(Class::error), code(c), description(new String(t)) {}
  void gone() override { release(description), description = nullptr; }
  std::int64_t code;
  String* description;
};
struct Options : Object {
  Options() : Object(Class::options) {}
  bool fast_math = true;  // true by default in Metal
};
struct Gpu : Object {
  explicit Gpu(int n) : Object(Class::device), number(n) { machine().retain(n, &context); }
  int number;
  Context* context = nullptr;
  std::mutex lock;
  std::uint64_t used = 0, allocations = 0;
  bool unified() const { return number % 2 == 0; }  // every second device has unified memory
};
struct Array : Object {
  Array() : Object(Class::array) {}
  void gone() override { all.clear(); }
  std::vector<Kept<Gpu>> all;
};
struct Buffer : Object {
  Buffer(Gpu* d, std::uint64_t n, bool s) : Object(Class::buffer), device(d), length(n), shared(s) {}
  void gone() override {
    if (shared)
      machine().free_host(reinterpret_cast<void*>(address));
    else
      machine().free(address);
    std::lock_guard hold(device->lock);
    device->used -= length;
  }
  Gpu* device;
  std::uint64_t length, address = 0;
  bool shared;
};
struct CommandBuffer;
struct Queue : Object {
  explicit Queue(Gpu* d) : Object(Class::queue), device(d) { machine().create_stream(*d->context, false, &stream); }
  void gone() override;
  Gpu* device;
  Stream* stream = nullptr;
  std::mutex lock;
  std::deque<Kept<CommandBuffer>> running;  ///< committed buffers, which Metal retains until they finish
  std::atomic<int> unfinished = 0;
};
struct SharedEvent : Object {
  explicit SharedEvent(Gpu* d) : Object(Class::event), device(d) {}
  void gone() override {
    for (auto& [value, event] : signals) machine().destroy(event);
    signals.clear();
  }
  Gpu* device;
  std::mutex lock;
  std::map<std::uint64_t, Event*> signals;  ///< the values that committed command buffers signal
};

/// The meaning of a kernel parameter, which its attribute defines.
struct Parameter {
  std::string attribute;
  int index = 0;
  bool pointer = false, writes = false;
};
struct KernelText {
  std::vector<Parameter> parameters;
  std::size_t pointers = 0;
  bool structure = false;
};
struct Library : Object {
  explicit Library(Gpu* d) : Object(Class::library), device(d) {}
  void gone() override { machine().unload(device->context, module); }
  Gpu* device;
  Module* module = nullptr;
  std::string object;
  std::map<std::string, KernelText> kernels;
};
struct KernelFunction : Object {
  KernelFunction(Library* l, std::string n) : Object(Class::function), library(l), name(std::move(n)) {}
  void gone() override { library = {}; }
  Kept<Library> library;
  std::string name;
};
struct Pipeline : Object {
  explicit Pipeline(KernelFunction* f) : Object(Class::pipeline), function(f) {}
  void gone() override { function = {}; }
  Kept<KernelFunction> function;
  tessera::fake::Function* machine_function = nullptr;
};
struct CommandBuffer : Object {
  explicit CommandBuffer(Queue* q) : Object(Class::command_buffer), queue(q) {}
  void gone() override {
    if (!committed) finish();
    if (event != nullptr) machine().destroy(event);
    event = nullptr;
  }
  void finish() {
    commands.clear();
    resources.clear();
    if (!std::exchange(finished, true)) --queue->unfinished;
    queue = {};
  }
  Kept<Queue> queue;
  bool committed = false, finished = false;
  Object* encoder = nullptr;  ///< the open encoder
  std::vector<std::function<Code()>> commands;
  std::vector<Kept<Object>> resources;  ///< retained until the command buffer finishes
  Code failed = ok;
  Event* event = nullptr;  ///< signalled after the last command
};
struct Encoder : Object {
  Encoder(Class c, CommandBuffer* b) : Object(c), buffer(b) {}
  void gone() override {
    if (!ended) machine().breach(std::string(name_of(kind)) + " is released before endEncoding", ok);
    buffer = {};
    pipeline = {};
    bound = {};
  }
  Kept<CommandBuffer> buffer;
  bool ended = false;
  Kept<Pipeline> pipeline;
  struct Binding {
    Kept<Buffer> buffer;
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::array<Binding, most_buffers> bound;
  std::uint64_t threadgroup_bytes = 0;
};

/// Returns the receiver of a message, after checking that it has the right class and was not destroyed.
template <class T>
T* receiver(void* self, Class kind, const char* message) {
  auto* o = static_cast<Object*>(self);
  if (o->kind != kind) {
    machine().breach(std::string(message) + " is sent to " + name_of(o->kind), ok);
    return nullptr;
  }
  if (o->references <= 0) {
    machine().breach(std::string(name_of(kind)) + " is used (" + message + ") after its last release", ok);
    return nullptr;
  }
  machine().enter(message);
  return static_cast<T*>(o);
}
#define SELF(type, kind)                                            \
  type* const self = receiver<type>(object, Class::kind, __func__); \
  if (self == nullptr) return {                                     \
    }

// Releases finished command buffers.

Code code_of(CommandBuffer& buffer) {
  if (buffer.failed != ok) return buffer.failed;
  return machine().query(*buffer.event);
}
void reap(Queue& queue) {
  std::vector<Kept<CommandBuffer>> done;
  {
    std::lock_guard hold(queue.lock);
    while (!queue.running.empty() && code_of(*queue.running.front().object) != not_ready) {
      done.push_back(queue.running.front());
      queue.running.pop_front();
    }
  }
  for (auto& buffer : done) buffer->finish();
}
void Queue::gone() {
  for (;;) {  // Metal keeps the queue alive until its work has finished
    reap(*this);
    std::lock_guard hold(lock);
    if (running.empty()) break;
    machine().synchronise(*stream);
  }
  machine().destroy(stream);
}

/// Returns the MTLCommandBufferError for a code.
std::int64_t metal_error(Code code) {
  switch (code) {
    case illegal_address: return 3;
    case out_of_memory: return 8;
    default: return 1;
  }
}

// Parses the text of kernels.

KernelText read_kernel(const std::string& source, const std::string& name) {
  KernelText kernel;
  std::size_t at = source.find("kernel void " + name + "(");
  at = source.find('(', at) + 1;
  int depth = 1;
  std::vector<std::string> list(1);
  for (; at < source.size() && depth > 0; ++at) {
    const char c = source[at];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 1)
      list.emplace_back();
    else if (depth > 0)
      list.back() += c;
  }
  for (const std::string& one : list) {
    const std::size_t open = one.find("[["), close = one.find("]]");
    if (open == one.npos || close == one.npos) continue;
    Parameter p;
    p.attribute = one.substr(open + 2, close - open - 2);
    if (const std::size_t bracket = p.attribute.find('('); bracket != p.attribute.npos) {
      p.index = std::atoi(p.attribute.c_str() + bracket + 1);
      p.attribute.resize(bracket);
    }
    p.pointer = one.find('*') != one.npos;
    p.writes = p.pointer && one.find("const ") == one.npos;
    if (p.attribute == "buffer" && p.pointer) ++kernel.pointers;
    if (p.attribute == "buffer" && !p.pointer) kernel.structure = true;
    kernel.parameters.push_back(std::move(p));
  }
  return kernel;
}

/// The values of the index attributes for one thread.
struct Indices {
  text::Dim threadgroup_position_in_grid, threadgroups_per_grid, thread_position_in_threadgroup,
      threads_per_threadgroup, threads_per_grid, thread_position_in_grid;
  unsigned thread_index_in_simdgroup, simdgroup_index_in_threadgroup, threads_per_simdgroup, simdgroups_per_threadgroup,
      thread_index_in_threadgroup;
  void set(const text::Thread& t) {
    threadgroup_position_in_grid = t.block, threadgroups_per_grid = t.grid;
    thread_position_in_threadgroup = t.thread, threads_per_threadgroup = t.block_size;
    threads_per_grid = {t.grid.x * t.block_size.x, t.grid.y * t.block_size.y, t.grid.z * t.block_size.z};
    thread_position_in_grid = {t.block.x * t.block_size.x + t.thread.x, t.block.y * t.block_size.y + t.thread.y,
                               t.block.z * t.block_size.z + t.thread.z};
    thread_index_in_threadgroup = t.linear;
    thread_index_in_simdgroup = t.linear % t.width, simdgroup_index_in_threadgroup = t.linear / t.width;
    threads_per_simdgroup = t.width;
    simdgroups_per_threadgroup = (t.block_size.x * t.block_size.y * t.block_size.z + t.width - 1) / t.width;
  }
  void* of(const std::string& name) {
#define TESSERA_INDEX(n) \
  if (name == #n) return &n;
    TESSERA_INDEX(threadgroup_position_in_grid)
    TESSERA_INDEX(threadgroups_per_grid)
    TESSERA_INDEX(thread_position_in_threadgroup)
    TESSERA_INDEX(threads_per_threadgroup)
    TESSERA_INDEX(threads_per_grid)
    TESSERA_INDEX(thread_position_in_grid)
    TESSERA_INDEX(thread_index_in_threadgroup)
    TESSERA_INDEX(thread_index_in_simdgroup)
    TESSERA_INDEX(simdgroup_index_in_threadgroup)
    TESSERA_INDEX(threads_per_simdgroup)
    TESSERA_INDEX(simdgroups_per_threadgroup)
#undef TESSERA_INDEX
    return nullptr;
  }
};

/// An encoded dispatch.
struct Dispatch {
  Kept<Pipeline> pipeline;
  std::array<Encoder::Binding, most_buffers> bound;
  std::uint64_t threadgroup_bytes = 0;
  Dimensions grid, block;

  Code launch(Queue& queue) {
    KernelFunction& function = *pipeline->function.object;
    Library& library = *function.library.object;
    const KernelText& kernel = library.kernels.at(function.name);
    auto direct = std::make_shared<DirectLaunch>();
    // Arguments that are not buffers are in the struct, in order and aligned to their sizes.
    KernelFacts& facts = direct->facts;
    if (!machine().facts_of(function.name, &facts)) {
      for (const Parameter& p : kernel.parameters)
        if (p.attribute == "buffer" && p.pointer)
          direct->own.push_back({.kind = KernelArgument::pointer,
                                 .number = static_cast<std::uint32_t>(direct->own.size()),
                                 .writes = p.writes});
      facts.parameters = facts.argument_count = static_cast<std::uint32_t>(direct->own.size());
      facts.arguments = direct->own.data();
    }
    std::vector<std::uint64_t> values(facts.argument_count);
    std::vector<void*> addresses;
    std::size_t pointer = 0, at = 0;
    const std::vector<std::byte> structure = kernel.structure ? bound[kernel.pointers].bytes : std::vector<std::byte>();
    for (std::uint32_t i = 0; i < facts.argument_count; ++i) {
      const KernelArgument& a = facts.arguments[i];
      if (a.kind == KernelArgument::pointer) {
        const Encoder::Binding& b = bound[pointer++];
        values[i] = b.buffer ? b.buffer->address + b.offset : 0;
      } else {
        at = (at + a.bytes - 1) / a.bytes * a.bytes;
        if (at + a.bytes > structure.size())
          return machine().breach("kernel " + function.name + ": setBytes passes fewer bytes than the structure has",
                                  launch_failed);
        std::memcpy(&values[i], structure.data() + at, a.bytes);
        at += a.bytes;
      }
      addresses.push_back(&values[i]);
    }
    const std::uint32_t width = machine().limits(queue.device->number).warp;
    direct->run = [this_dispatch = *this, &kernel, object = library.object, name = function.name, structure, width,
                   number = machine().count("launches")](const KernelFacts& of,
                                                         std::vector<std::uint64_t>& bits) mutable -> std::string {
      std::vector<void*> pointers;  // in the order of the buffer indices
      for (std::uint32_t i = 0; i < of.argument_count; ++i)
        if (of.arguments[i].kind == KernelArgument::pointer) pointers.push_back(&bits[i]);
      // Allocates the requested size, followed by guard bytes that the kernel must not change.
      std::vector<unsigned char> memory(this_dispatch.threadgroup_bytes + 64, 0xa5);
      unsigned char* const block_memory = memory.data();
      void* block_pointer = block_memory;
      Indices indices{};
      std::vector<void*> arguments;
      for (const Parameter& p : kernel.parameters) {
        if (p.attribute == "buffer")
          arguments.push_back(p.pointer ? pointers.at(static_cast<std::size_t>(p.index))
                                        : const_cast<std::byte*>(structure.data()));
        else if (p.attribute == "threadgroup")
          arguments.push_back(&block_pointer);
        else
          arguments.push_back(indices.of(p.attribute));
        if (arguments.back() == nullptr) return "an argument with the attribute " + p.attribute;
      }
      const std::string error = text::object_of(object).run(
          name,
          {{this_dispatch.grid.x, this_dispatch.grid.y, this_dispatch.grid.z},
           {this_dispatch.block.x, this_dispatch.block.y, this_dispatch.block.z},
           width,
           number},
          std::move(arguments), [](const text::Thread& t, void* user) { static_cast<Indices*>(user)->set(t); },
          &indices, {block_memory, this_dispatch.threadgroup_bytes});
      if (std::any_of(memory.end() - 64, memory.end(), [](unsigned char c) { return c != 0xa5; }))
        return "it writes past its threadgroup memory";
      return error;
    };
    return machine().launch(*queue.device->context, *pipeline->machine_function, grid, block,
                            static_cast<std::uint32_t>(threadgroup_bytes), *queue.stream, addresses.data(), nullptr, {},
                            direct);
  }
};

// Messages.

using Id = void*;
using UInt = std::uint64_t;
struct Selector;
using Sel = Selector*;
struct Size {
  UInt width, height, depth;
};

Id do_retain(Id object, Sel) {
  auto* o = static_cast<Object*>(object);
  if (o->references <= 0) machine().breach(std::string(name_of(o->kind)) + " is retained after its last release", ok);
  retain(o);
  return object;
}
void do_release(Id object, Sel) { release(static_cast<Object*>(object)); }
Id do_new(Id object, Sel) {
  SELF(Meta, meta);
  if (self->name == "MTLCompileOptions") return new Options;
  machine().breach("new is sent to " + self->name, ok);
  return nullptr;
}
Id do_string_with(Id object, Sel, const char* characters) {
  SELF(Meta, meta);
  return autorelease(new String(characters));
}
const char* do_utf8(Id object, Sel) {
  SELF(String, string);
  return self->characters.c_str();
}
UInt do_count(Id object, Sel) {
  SELF(Array, array);
  return self->all.size();
}
Id do_object_at(Id object, Sel, UInt at) {
  SELF(Array, array);
  return at < self->all.size() ? self->all[at].object : nullptr;
}
std::int64_t do_code(Id object, Sel) {
  SELF(Error, error);
  return self->code;
}
Id do_description(Id object, Sel) {
  SELF(Error, error);
  return self->description;
}
void do_set_fast_math(Id object, Sel, bool on) {
  if (auto* self = receiver<Options>(object, Class::options, __func__)) self->fast_math = on;
}
void do_set_language(Id object, Sel, UInt version) {
  if (receiver<Options>(object, Class::options, __func__) != nullptr && (version >> 16 < 1 || version >> 16 > 3))
    machine().breach("unsupported language version", ok);
}

// Messages to a device.

Id do_name(Id object, Sel) {
  SELF(Gpu, device);
  return autorelease(new String(self->unified() ? "Fake M2" : "AMD Fake Pro 5500M"));
}
UInt do_registry_id(Id object, Sel) {
  SELF(Gpu, device);
  return 0x100000300 + static_cast<UInt>(self->number);
}
bool do_unified(Id object, Sel) {
  SELF(Gpu, device);
  return self->unified();
}
bool do_removable(Id object, Sel) {
  SELF(Gpu, device);
  return false;
}
UInt do_working_set(Id object, Sel) {
  SELF(Gpu, device);
  return machine().settings().memory;
}
UInt do_allocated(Id object, Sel) {
  SELF(Gpu, device);
  std::lock_guard hold(self->lock);
  return self->used;
}
UInt do_max_buffer(Id object, Sel) {
  SELF(Gpu, device);
  return machine().settings().memory / 4 * 3;
}
UInt do_max_threadgroup_memory(Id object, Sel) {
  SELF(Gpu, device);
  return most_threadgroup_memory;
}
std::atomic<Buffer*> newest_buffer = nullptr;
Id do_new_buffer(Id object, Sel, UInt length, UInt options) {
  SELF(Gpu, device);
  const UInt storage = options >> 4 & 15;
  if ((options & ~UInt{0xff0}) != 0 || (storage != 0 && storage != 2) || length == 0) {
    machine().breach("newBufferWithLength: a length of 0, or options that the fake does not support", ok);
    return nullptr;
  }
  {
    std::lock_guard hold(self->lock);
    if (storage == 0 && machine().faults().strikes("oom", ++self->allocations, out_of_memory, self->number))
      return nullptr;
    if (length > machine().settings().memory - self->used) return nullptr;
    self->used += length;
  }
  auto* buffer = new Buffer(self, length, storage == 0);
  Code code = ok;
  if (buffer->shared) {
    void* host = nullptr;
    code = machine().allocate_host(*self->context, length, &host);
    buffer->address = reinterpret_cast<UInt>(host);
  } else {
    code = machine().allocate(*self->context, length, &buffer->address);
  }
  if (code == ok) return newest_buffer = buffer;
  --living[static_cast<int>(Class::buffer)];
  std::lock_guard hold(self->lock);
  self->used -= length;
  delete buffer;
  return nullptr;
}
Id do_new_buffer_with(Id object, Sel selector, const void* bytes, UInt length, UInt options) {
  if (options != 0) machine().breach("newBufferWithBytes: the host writes to it, so it must be shared", ok);
  auto* buffer = static_cast<Buffer*>(do_new_buffer(object, selector, length, 0));
  if (buffer != nullptr) std::memcpy(reinterpret_cast<void*>(buffer->address), bytes, length);
  return buffer;
}
void* do_contents(Id object, Sel) {
  SELF(Buffer, buffer);
  return self->shared ? reinterpret_cast<void*>(self->address) : nullptr;
}
Id do_new_queue(Id object, Sel) {
  SELF(Gpu, device);
  return new Queue(self);
}
Id do_new_shared_event(Id object, Sel) {
  SELF(Gpu, device);
  return new SharedEvent(self);
}
Id do_new_library(Id object, Sel, Id source_object, Id options, Id* error) {
  SELF(Gpu, device);
  const auto* source = receiver<String>(source_object, Class::string, __func__);
  if (source == nullptr) return nullptr;
  const auto refuse = [&](const std::string& why) {
    if (error != nullptr) *error = autorelease(new Error(3, why));  // MTLLibraryErrorCompileFailure
    return nullptr;
  };
  if (options == nullptr || receiver<Options>(options, Class::options, __func__)->fast_math)
    machine().breach("a library is compiled with fast math, which changes results", ok);
  if (machine().faults().find("compile", self->number))
    return refuse("program_source:1:1: error: this compiler is set to reject everything");
  if (std::string said = complaint(source->characters, "program_source"); !said.empty()) return refuse(said);
  std::vector<std::string> names;
  for (const auto& [name, parameters] : find_kernels(source->characters, "kernel ")) names.push_back(name);
  const text::CompiledText made = text::compile(source->characters, text::Language::metal, names);
  if (!made.made) return refuse(made.log);
  auto* library = new Library(self);
  library->object = made.object;
  Entries entries;
  for (const std::string& name : names) {
    library->kernels[name] = read_kernel(source->characters, name);
    entries[name] = -1;
  }
  machine().load(*self->context, entries, &library->module);
  return library;
}
Id do_new_function(Id object, Sel, Id name) {
  SELF(Library, library);
  const auto* text = receiver<String>(name, Class::string, __func__);
  return text != nullptr && self->kernels.contains(text->characters) ? new KernelFunction(self, text->characters)
                                                                     : nullptr;
}
Id do_new_pipeline(Id object, Sel, Id function_object, Id* error) {
  SELF(Gpu, device);
  auto* function = receiver<KernelFunction>(function_object, Class::function, __func__);
  if (function == nullptr) return nullptr;
  auto* pipeline = new Pipeline(function);
  const Code code = machine().function(*self->context, function->library->module, function->name.c_str(),
                                       &pipeline->machine_function);
  if (code == ok) return pipeline;
  release(pipeline);
  if (error != nullptr) *error = autorelease(new Error(1, "the function belongs to another device"));
  return nullptr;
}
UInt do_max_threads(Id object, Sel) {
  SELF(Pipeline, pipeline);
  const Fault* f = machine().faults().find("threads");
  return f != nullptr ? f->number : 1024;
}
UInt do_execution_width(Id object, Sel) {
  SELF(Pipeline, pipeline);
  return machine().limits(self->function->library->device->number).warp;
}

// Messages to command buffers.

Id do_command_buffer(Id object, Sel) {
  SELF(Queue, queue);
  reap(*self);
  if (++self->unfinished > 64) machine().breach("the queue has more than 64 unfinished command buffers", ok);
  return autorelease(new CommandBuffer(self));
}
Id new_encoder(Id object, Class kind, const char* message) {
  auto* self = receiver<CommandBuffer>(object, Class::command_buffer, message);
  if (self == nullptr) return nullptr;
  if (self->committed || self->encoder != nullptr) {
    machine().breach(self->committed ? "an encoder is made after commit"
                                     : "an encoder is made while another is open on this command buffer",
                     ok);
    return nullptr;
  }
  auto* encoder = new Encoder(kind, self);
  self->encoder = encoder;
  return autorelease(encoder);
}
Id do_compute_encoder(Id object, Sel) { return new_encoder(object, Class::compute_encoder, __func__); }
Id do_blit_encoder(Id object, Sel) { return new_encoder(object, Class::blit_encoder, __func__); }
Encoder* encoder_of(Id object, const char* message) {
  const Class kind = static_cast<Object*>(object)->kind;
  auto* self = receiver<Encoder>(object, kind == Class::blit_encoder ? kind : Class::compute_encoder, message);
  if (self != nullptr && self->ended) {
    machine().breach(std::string(message) + " is sent to an encoder after endEncoding", ok);
    return nullptr;
  }
  return self;
}
void do_end_encoding(Id object, Sel) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  self->ended = true;
  self->buffer->encoder = nullptr;
}
void do_set_pipeline(Id object, Sel, Id pipeline) {
  if (Encoder* self = encoder_of(object, __func__))
    self->pipeline = Kept<Pipeline>(receiver<Pipeline>(pipeline, Class::pipeline, __func__));
}
void do_set_buffer(Id object, Sel, Id buffer_object, UInt offset, UInt index) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  auto* buffer = buffer_object != nullptr ? receiver<Buffer>(buffer_object, Class::buffer, __func__) : nullptr;
  if (index >= most_buffers || (buffer != nullptr && offset > buffer->length)) {
    machine().breach("setBuffer: an index past 30, or an offset past the end of the buffer", ok);
    return;
  }
  self->bound[index] = {Kept<Buffer>(buffer), offset, {}};
}
void do_set_bytes(Id object, Sel, const void* bytes, UInt length, UInt index) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  if (index >= most_buffers || length > most_bytes || length == 0) {
    machine().breach("setBytes: an index past 30, or more than 4096 bytes", ok);
    return;
  }
  const auto* from = static_cast<const std::byte*>(bytes);
  self->bound[index] = {{}, 0, {from, from + length}};
}
void do_set_threadgroup_memory(Id object, Sel, UInt length, UInt index) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  if (length % 16 != 0 || length > most_threadgroup_memory || index != 0) {
    machine().breach(
        "setThreadgroupMemoryLength: not a multiple of 16, more than available, or an index not supported by the fake",
        ok);
    return;
  }
  self->threadgroup_bytes = length;
}
void do_dispatch(Id object, Sel, Size groups, Size threads) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  if (!self->pipeline) {
    machine().breach("a dispatch without a pipeline", ok);
    return;
  }
  CommandBuffer& buffer = *self->buffer.object;
  auto dispatch = std::make_shared<Dispatch>();
  dispatch->pipeline = self->pipeline;
  dispatch->bound = self->bound;
  dispatch->threadgroup_bytes = self->threadgroup_bytes;
  const auto dimensions = [](const Size& s) {
    return Dimensions{static_cast<std::uint32_t>(s.width), static_cast<std::uint32_t>(s.height),
                      static_cast<std::uint32_t>(s.depth)};
  };
  dispatch->grid = dimensions(groups), dispatch->block = dimensions(threads);
  if (groups.width > 0xffffffff || groups.height > 0xffffffff || groups.depth > 0xffffffff)
    machine().breach("a grid whose positions do not fit in 32 bits", ok);
  // Reports kernel arguments that are not bound.
  const KernelFunction& function = *self->pipeline->function.object;
  const KernelText& kernel = function.library->kernels.at(function.name);
  if (kernel.structure && dispatch->bound[kernel.pointers].bytes.empty())
    machine().breach("kernel " + function.name + ": its argument structure is not bound", ok);
  buffer.resources.emplace_back(Kept<Object>(dispatch->pipeline.object));
  for (const auto& b : dispatch->bound)
    if (b.buffer) buffer.resources.emplace_back(Kept<Object>(b.buffer.object));
  buffer.commands.push_back([dispatch, &buffer] { return dispatch->launch(*buffer.queue.object); });
}
void do_copy_buffer(Id object, Sel, Id from_object, UInt from_offset, Id to_object, UInt to_offset, UInt bytes) {
  Encoder* self = encoder_of(object, __func__);
  if (self == nullptr) return;
  auto* from = receiver<Buffer>(from_object, Class::buffer, __func__);
  auto* to = receiver<Buffer>(to_object, Class::buffer, __func__);
  if (from == nullptr || to == nullptr) return;
  if ((from_offset | to_offset | bytes) % 4 != 0)
    machine().breach("a copy whose offsets or length are not multiples of 4", ok);
  if (from_offset + bytes > from->length || to_offset + bytes > to->length) {
    machine().breach("a copy past the end of a buffer", ok);
    return;
  }
  CommandBuffer& buffer = *self->buffer.object;
  buffer.resources.emplace_back(Kept<Object>(from));
  buffer.resources.emplace_back(Kept<Object>(to));
  const UInt target = to->address + to_offset, source = from->address + from_offset;
  buffer.commands.push_back([&buffer, target, source, bytes] {
    Queue& queue = *buffer.queue.object;
    return machine().copy(*queue.device->context, target, source, bytes, Machine::Copy::any, *queue.stream, false);
  });
}
void do_signal_event(Id object, Sel, Id event_object, UInt value) {
  auto* self = receiver<CommandBuffer>(object, Class::command_buffer, __func__);
  auto* event = receiver<SharedEvent>(event_object, Class::event, __func__);
  if (self == nullptr || event == nullptr) return;
  if (self->encoder != nullptr) machine().breach("encodeSignalEvent while an encoder is open", ok);
  self->resources.emplace_back(Kept<Object>(event));
  self->commands.push_back([self, event, value] {
    Queue& queue = *self->queue.object;
    Event* made = nullptr;
    machine().create_event(*queue.device->context, false, &made);
    const Code code = machine().record(*queue.device->context, *made, *queue.stream);
    std::lock_guard hold(event->lock);
    event->signals[value] = made;
    while (event->signals.size() > 4) {  // if this value is reached, smaller values are also reached
      machine().destroy(event->signals.begin()->second);
      event->signals.erase(event->signals.begin());
    }
    return code;
  });
}
void do_wait_event(Id object, Sel, Id event_object, UInt value) {
  auto* self = receiver<CommandBuffer>(object, Class::command_buffer, __func__);
  auto* event = receiver<SharedEvent>(event_object, Class::event, __func__);
  if (self == nullptr || event == nullptr) return;
  if (self->encoder != nullptr) machine().breach("encodeWaitForEvent while an encoder is open", ok);
  self->resources.emplace_back(Kept<Object>(event));
  self->commands.push_back([self, event, value] {
    std::lock_guard hold(event->lock);
    const auto it = event->signals.lower_bound(value);
    if (it == event->signals.end())
      return machine().breach("a command buffer waits for a value that no committed one signals", ok);
    return machine().wait(*self->queue->stream, *it->second);
  });
}
void do_commit(Id object, Sel) {
  auto* self = receiver<CommandBuffer>(object, Class::command_buffer, __func__);
  if (self == nullptr) return;
  if (self->committed || self->encoder != nullptr) {
    machine().breach(self->committed ? "a command buffer is committed twice" : "commit while an encoder is open", ok);
    return;
  }
  self->committed = true;
  Queue& queue = *self->queue.object;
  for (auto& command : self->commands)
    if (self->failed == ok) self->failed = command();
  self->commands.clear();
  machine().create_event(*queue.device->context, false, &self->event);
  if (self->failed == ok) self->failed = machine().record(*queue.device->context, *self->event, *queue.stream);
  std::lock_guard hold(queue.lock);
  queue.running.emplace_back(Kept<CommandBuffer>(self));
}
void do_wait_completed(Id object, Sel) {
  auto* self = receiver<CommandBuffer>(object, Class::command_buffer, __func__);
  if (self == nullptr) return;
  if (!self->committed) {
    machine().breach("waitUntilCompleted before commit: it never returns", ok);
    return;
  }
  const Kept<Queue> queue = self->queue;
  machine().synchronise(*self->event);
  if (queue) reap(*queue.object);
}
UInt do_status(Id object, Sel) {
  SELF(CommandBuffer, command_buffer);
  if (!self->committed) return 0;
  const Code code = code_of(*self);
  return code == ok ? 4 : code == not_ready ? 2 : 5;
}
Id do_error(Id object, Sel) {
  SELF(CommandBuffer, command_buffer);
  const Code code = self->committed ? code_of(*self) : ok;
  if (code == ok || code == not_ready) return nullptr;
  return autorelease(
      new Error(metal_error(code), "Caused GPU Address Fault Error (fake code " + std::to_string(code) + ")"));
}
Id do_device(Id object, Sel) {
  SELF(Queue, queue);
  return self->device;
}

void answer_nothing(Id, Sel) { machine().breach("unrecognised selector", ok); }

struct Selector {
  void* function;
  const char* name;
};
template <class F>
void* as_pointer(F* f) {
  return reinterpret_cast<void*>(f);
}
const std::map<std::string, void*>& messages() {
  static const std::map<std::string, void*> all = {
      {"retain", as_pointer(do_retain)},
      {"release", as_pointer(do_release)},
      {"new", as_pointer(do_new)},
      {"count", as_pointer(do_count)},
      {"objectAtIndex:", as_pointer(do_object_at)},
      {"stringWithUTF8String:", as_pointer(do_string_with)},
      {"UTF8String", as_pointer(do_utf8)},
      {"code", as_pointer(do_code)},
      {"localizedDescription", as_pointer(do_description)},
      {"name", as_pointer(do_name)},
      {"registryID", as_pointer(do_registry_id)},
      {"hasUnifiedMemory", as_pointer(do_unified)},
      {"isRemovable", as_pointer(do_removable)},
      {"recommendedMaxWorkingSetSize", as_pointer(do_working_set)},
      {"currentAllocatedSize", as_pointer(do_allocated)},
      {"maxBufferLength", as_pointer(do_max_buffer)},
      {"maxThreadgroupMemoryLength", as_pointer(do_max_threadgroup_memory)},
      {"newBufferWithLength:options:", as_pointer(do_new_buffer)},
      {"newBufferWithBytes:length:options:", as_pointer(do_new_buffer_with)},
      {"contents", as_pointer(do_contents)},
      {"newCommandQueue", as_pointer(do_new_queue)},
      {"newSharedEvent", as_pointer(do_new_shared_event)},
      {"setFastMathEnabled:", as_pointer(do_set_fast_math)},
      {"setLanguageVersion:", as_pointer(do_set_language)},
      {"newLibraryWithSource:options:error:", as_pointer(do_new_library)},
      {"newFunctionWithName:", as_pointer(do_new_function)},
      {"newComputePipelineStateWithFunction:error:", as_pointer(do_new_pipeline)},
      {"maxTotalThreadsPerThreadgroup", as_pointer(do_max_threads)},
      {"threadExecutionWidth", as_pointer(do_execution_width)},
      {"device", as_pointer(do_device)},
      {"commandBuffer", as_pointer(do_command_buffer)},
      {"computeCommandEncoder", as_pointer(do_compute_encoder)},
      {"blitCommandEncoder", as_pointer(do_blit_encoder)},
      {"endEncoding", as_pointer(do_end_encoding)},
      {"setComputePipelineState:", as_pointer(do_set_pipeline)},
      {"setBuffer:offset:atIndex:", as_pointer(do_set_buffer)},
      {"setBytes:length:atIndex:", as_pointer(do_set_bytes)},
      {"setThreadgroupMemoryLength:atIndex:", as_pointer(do_set_threadgroup_memory)},
      {"dispatchThreadgroups:threadsPerThreadgroup:", as_pointer(do_dispatch)},
      {"copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", as_pointer(do_copy_buffer)},
      {"encodeSignalEvent:value:", as_pointer(do_signal_event)},
      {"encodeWaitForEvent:value:", as_pointer(do_wait_event)},
      {"commit", as_pointer(do_commit)},
      {"waitUntilCompleted", as_pointer(do_wait_completed)},
      {"status", as_pointer(do_status)},
      {"error", as_pointer(do_error)}};
  return all;
}

}  // namespace

EXPORT Sel sel_registerName(const char* name) {
  static std::mutex lock;
  static auto* const known = new std::map<std::string, Selector*>;
  std::lock_guard hold(lock);
  Selector*& selector = (*known)[name];
  if (selector == nullptr) {
    const auto it = messages().find(name);
    selector = new Selector{it != messages().end() ? it->second : as_pointer(answer_nothing), nullptr};
  }
  return selector;
}
EXPORT Id objc_getClass(const char* name) {
  static std::mutex lock;
  static auto* const known = new std::map<std::string, Meta*>;
  std::lock_guard hold(lock);
  Meta*& meta = (*known)[name];
  if (meta == nullptr) meta = new Meta(name);
  return meta;
}
EXPORT void* objc_autoreleasePoolPush() {
  if (pools == nullptr) pools = pools_of_a_thread();
  pools->emplace_back();
  return reinterpret_cast<void*>(pools->size());
}
EXPORT void objc_autoreleasePoolPop(void* pool) {
  if (pools == nullptr || reinterpret_cast<std::size_t>(pool) != pools->size()) {
    machine().breach("a pool is popped that is not this thread's innermost pool", ok);
    return;
  }
  const std::vector<Object*> all = std::move(pools->back());
  pools->pop_back();
  for (Object* o : all) release(o);
}
EXPORT Id MTLCopyAllDevices() {
  static std::mutex lock;
  static auto* const gpus = new std::vector<Gpu*>;  // never destroyed
  auto* all = new Array;
  if (machine().initialise(__func__) != ok) return all;
  std::lock_guard hold(lock);
  while (gpus->size() < static_cast<std::size_t>(machine().settings().devices))
    gpus->push_back(new Gpu(static_cast<int>(gpus->size())));
  for (Gpu* gpu : *gpus) all->all.emplace_back(Kept<Gpu>(gpu));
  if (machine().faults().find("reversed")) std::reverse(all->all.begin(), all->all.end());
  return all;
}
/// Returns the number of live objects of the class with this name.
EXPORT int tessera_fake_objects(const char* name) {
  for (std::size_t i = 0; i < std::size(class_names); ++i)
    if (std::strcmp(class_names[i], name) == 0) return living[i];
  return -1;
}
/// Returns the last result of "newBufferWithLength:options:", for tests that write to it.
EXPORT Id tessera_fake_newest_buffer() { return newest_buffer; }
