// SPDX-License-Identifier: Apache-2.0
// Implements the functions of stream::Api that are the same in CUDA and HIP, for any table of entry points with the
// same member names. Handles and addresses are converted to the types that each function expects.
#pragma once

#include <algorithm>

#include "tessera/backend/stream/api.h"

namespace tessera::stream {

/// A handle that converts to the pointer type that a function expects.
struct In {
  const void* handle;
  template <class T>
  operator T*() const {
    return static_cast<T*>(const_cast<void*>(handle));
  }
};
/// An output parameter for a handle.
struct Out {
  Handle* handle;
  template <class T>
  operator T**() const {
    return reinterpret_cast<T**>(handle);
  }
};
/// An address in device memory. CUDA uses integers, HIP uses pointers.
struct At {
  Address address;
  operator Address() const { return address; }
  template <class T>
  operator T*() const {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
  }
};

/// An output parameter for an array of handles.
struct OutList {
  Handle const** list;
  template <class T>
  operator T* const**() const {
    return reinterpret_cast<T* const**>(list);
  }
};

/// Constants that have the same values in CUDA and HIP. tests/compilers/vendor_headers_*_test.cpp compare them with the
/// vendors' headers.
struct TableValues {
  static constexpr unsigned stream_non_blocking = 1, event_blocking_sync = 1, event_disable_timing = 2,
                            host_portable = 1;
  static constexpr int function_max_threads_per_block = 0;
  /// A capture in this mode restricts only the capturing thread. Other threads may make any call.
  static constexpr int capture_thread_local = 1;
};

/// `Table` is cuda::DriverFunctions or rocm::RuntimeFunctions.
template <class Table>
class TableApi : public Api {
 public:
  explicit TableApi(const Table& call) : call_(call) {}

  void exchange_capture_mode(int* mode) const override {
    if (call_.exchange_capture_mode != nullptr) call_.exchange_capture_mode(mode);
  }
  Code memory_info(std::size_t* free, std::size_t* total) const override { return call_.memory_info(free, total); }
  Code release(Address address) const override { return call_.release(At{address}); }
  Code allocate_pinned(void** host, std::size_t bytes) const override {
    return call_.allocate_host(host, bytes, TableValues::host_portable);
  }
  Code release_pinned(void* host) const override { return call_.release_host(host); }

  Code create_stream(Handle* stream) const override {
    return call_.create_stream(Out{stream}, TableValues::stream_non_blocking);
  }
  Code destroy_stream(Handle stream) const override { return call_.destroy_stream(In{stream}); }
  Code synchronize_stream(Handle stream) const override { return call_.synchronize_stream(In{stream}); }
  Code stream_wait_event(Handle stream, Handle event) const override {
    return call_.stream_wait_event(In{stream}, In{event}, 0);
  }

  Code create_event(Handle* event, bool blocking) const override {
    const unsigned how = blocking ? TableValues::event_blocking_sync : 0;
    return call_.create_event(Out{event}, TableValues::event_disable_timing | how);
  }
  Code record_event(Handle event, Handle stream) const override { return call_.record_event(In{event}, In{stream}); }
  Code query_event(Handle event) const override { return call_.query_event(In{event}); }
  Code synchronize_event(Handle event) const override { return call_.synchronize_event(In{event}); }
  Code destroy_event(Handle event) const override { return call_.destroy_event(In{event}); }

  Code copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const override {
    return call_.copy_to_device(At{to}, In{from}, bytes, In{stream});
  }
  Code copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const override {
    return call_.copy_to_host(to, At{from}, bytes, In{stream});
  }
  Code copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const override {
    return call_.copy_on_device(At{to}, At{from}, bytes, In{stream});
  }
  Code fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const override {
    switch (word_bytes) {
      case 1: return call_.fill8(At{to}, static_cast<unsigned char>(word), count, In{stream});
      case 2: return call_.fill16(At{to}, static_cast<unsigned short>(word), count, In{stream});
      default: return call_.fill32(At{to}, word, count, In{stream});
    }
  }

  Code unload_module(Handle module) const override { return call_.unload_module(In{module}); }
  Code get_function(Handle module, const char* entry, Handle* function) const override {
    return call_.get_function(Out{function}, In{module}, entry);
  }
  Code max_block_size(Handle function, int* threads) const override {
    return call_.function_attribute(threads, TableValues::function_max_threads_per_block, In{function});
  }
  Code launch(Handle function, const backend::Grid& g, unsigned shared_bytes, Handle stream,
              std::span<backend::BoundArgument> arguments) const override {
    auto n = [](std::uint64_t v) { return static_cast<unsigned>(v); };
    return call_.launch(In{function}, n(g.blocks[0]), n(g.blocks[1]), n(g.blocks[2]), n(g.block[0]), n(g.block[1]),
                        n(g.block[2]), shared_bytes, In{stream}, addresses_of(arguments), nullptr);
  }

  bool graphs() const override { return call_.graphs; }
  Code begin_capture(Handle stream) const override {
    return call_.begin_capture(In{stream}, TableValues::capture_thread_local);
  }
  Code end_capture(Handle stream, Handle* graph) const override { return call_.end_capture(In{stream}, Out{graph}); }
  Code newest_node(Handle stream, Handle* node) const override {
    int status = 0;
    Handle const* newest = nullptr;
    std::size_t count = 0;
    const Code code = call_.capture_info(In{stream}, &status, nullptr, nullptr, OutList{&newest}, &count);
    if (code != 0) return code;
    if (count != 1) return unsupported;  // the next node must depend only on the newest node
    *node = newest[0];
    return 0;
  }
  Code destroy_graph(Handle graph) const override { return call_.destroy_graph(In{graph}); }
  Code destroy_executable(Handle executable) const override { return call_.destroy_executable(In{executable}); }
  Code launch_graph(Handle executable, Handle stream) const override {
    return call_.launch_graph(In{executable}, In{stream});
  }

 protected:
  const Table call_;
};

/// Compiles a program with NVRTC or hiprtc. The image contains the log. If the text has no errors, calls `get(program,
/// image.bytes)` to get the code. Calls `check(code, function)` to throw errors of the compiler itself. `prefix` is the
/// prefix of the function names ("nvrtc"). `wrong_text` is the code that means that the text has errors.
template <class Table, class Check, class Get>
Image compile_text(const Table& call, const char* prefix, const std::string& text,
                   std::initializer_list<const char*> options, Code wrong_text, Check&& check, Get&& get) {
  Handle program = nullptr;
  check(call.create_program(Out{&program}, text.c_str(), "kernels", 0, nullptr, nullptr),
        std::string(prefix) + "CreateProgram");
  struct Guard {
    const Table& call;
    Handle program;
    ~Guard() { call.destroy_program(Out{&program}); }
  } guard{call, program};
  std::vector<const char*> all = options;
  const Code code = call.compile_program(In{program}, static_cast<int>(all.size()), all.data());
  Image image;
  std::size_t size = 0;
  if (call.log_size(In{program}, &size) == 0 && size > 1) {
    image.log.resize(size);
    call.log(In{program}, image.log.data());
    image.log.resize(std::min(image.log.find('\0'), image.log.size()));
  }
  if (code == wrong_text) return image;
  check(code, std::string(prefix) + "CompileProgram");
  get(program, image.bytes);
  image.made = true;
  return image;
}

}  // namespace tessera::stream
