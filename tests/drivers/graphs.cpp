// SPDX-License-Identifier: Apache-2.0
// Captures work from a stream and launches it as a graph. The nodes of a graph form a chain, because only one stream is
// captured. Calls that are illegal during a capture invalidate it, as documented for cuStreamBeginCapture.
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/drivers/machine.h"

namespace tessera::fake {
namespace {

thread_local Stream* capturing = nullptr;
enum { global, thread_local_, relaxed };
thread_local int mode_of_thread = global;

std::uint64_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1; }

}  // namespace

Code Machine::outside_of_capture() {
  std::lock_guard hold(lock_);
  return outside_of_capture_locked();
}
Code Machine::outside_of_capture_locked() {
  if (mode_of_thread == relaxed) return ok;
  if (capturing != nullptr && capturing->capture_mode != relaxed) {
    capturing->spoilt = true;
    return breach_locked("called by a thread that is capturing a stream", capture_unsupported);
  }
  if (mode_of_thread == thread_local_ || global_captures_.empty()) return ok;
  for (Stream* stream : global_captures_) stream->spoilt = true;
  return breach_locked("called while another thread captures a stream in global mode", capture_unsupported);
}

Code Machine::exchange_capture_mode(int* mode) {
  std::lock_guard hold(lock_);
  if (mode == nullptr || *mode < global || *mode > relaxed) return breach_locked("unknown mode", invalid_value);
  std::swap(*mode, mode_of_thread);
  return ok;
}

Code Machine::begin_capture(Stream& stream, int mode) {
  if (!execute_) return ok;
  std::lock_guard hold(lock_);
  if (faults_.find("no-graphs", stream.context->device)) return not_supported;
  if (stream.null) return breach_locked("the context's own stream cannot be captured", capture_unsupported);
  if (stream.capture != nullptr) return breach_locked("the stream is being captured already", illegal_state);
  if (capturing != nullptr) return breach_locked("this thread is capturing another stream", illegal_state);
  auto* graph = new Graph{Handle{.kind = Kind::graph, .context = stream.context}};
  keep(graph);
  stream.capture = graph;
  stream.spoilt = false;
  stream.capturer = this_thread();
  stream.capture_mode = mode;
  capturing = &stream;
  if (mode == global) global_captures_.push_back(&stream);
  return ok;
}

Code Machine::begin_list(Stream& stream) {
  std::lock_guard hold(lock_);
  auto* graph = new Graph{Handle{.kind = Kind::graph, .context = stream.context}};
  keep(graph);
  stream.capture = graph;
  stream.capturer = 0;
  return ok;
}

Code Machine::close_list(Stream& stream) {
  Graph* graph = nullptr;
  {
    std::lock_guard hold(lock_);
    if (stream.capture == nullptr)
      return breach_locked("a list is closed twice, or is an immediate one", invalid_value);
    graph = std::exchange(stream.capture, nullptr);
    if (std::exchange(stream.spoilt, false)) return graph->live = false, capture_invalidated;
  }
  const Code code = instantiate(*stream.context, graph, &stream.closed);
  destroy_graph(graph);
  return code;
}

Code Machine::capture(Stream& stream, Work work, bool waits) {
  if (stream.capturer != 0 && stream.capturer != this_thread()) {
    stream.spoilt = true;
    return breach_locked(work.what + " is submitted to a stream that another thread captures", capture_wrong_thread);
  }
  const bool barrier = work.order.barrier && work.order.signal == nullptr && work.order.waits.empty();
  if (waits || (!work.run && !barrier) || !work.after.empty()) {
    stream.spoilt = true;
    return breach_locked(work.what + " cannot be captured here", capture_unsupported);
  }
  if (stream.spoilt) return capture_invalidated;
  auto* node = new Node{Handle{.kind = Kind::node, .context = stream.context}, stream.capture, std::move(work)};
  keep(node);
  stream.capture->nodes.push_back(node);
  return ok;
}

Code Machine::end_capture(Stream& stream, Graph** out) {
  *out = nullptr;
  if (!execute_) return ok;
  std::lock_guard hold(lock_);
  if (stream.capture == nullptr) return breach_locked("the stream is not being captured", illegal_state);
  if (stream.capturer != this_thread())
    return breach_locked("a capture is ended on a different thread than the one that began it", capture_wrong_thread);
  Graph* const graph = std::exchange(stream.capture, nullptr);
  capturing = nullptr;
  std::erase(global_captures_, &stream);
  if (std::exchange(stream.spoilt, false)) {
    graph->live = false;
    return capture_invalidated;
  }
  *out = graph;
  return ok;
}

Code Machine::newest_node(Stream& stream, Node** node) {
  *node = nullptr;
  std::lock_guard hold(lock_);
  if (stream.capture != nullptr && !stream.capture->nodes.empty()) *node = stream.capture->nodes.back();
  return ok;
}

Code Machine::instantiate(Context& context, void* handle, Executable** out) {
  std::lock_guard hold(lock_);
  *out = nullptr;
  Code code = ok;
  auto* graph = static_cast<Graph*>(handle_of(handle, Kind::graph, &code));
  if (graph == nullptr) return code;
  if (graph->context != &context) return breach_locked("the graph belongs to another device", invalid_handle);
  if (const Fault* f = faults_.find("instantiate", context.device)) return f->code.value_or(out_of_memory);
  auto* executable = new Executable{Handle{.kind = Kind::executable, .context = &context}, graph, graph->nodes};
  for (const Node* node : graph->nodes) executable->work.push_back(node->work);
  keep(executable);
  *out = executable;
  return ok;
}

Code Machine::destroy_graph(void* handle) {
  if (!execute_) return ok;
  std::lock_guard hold(lock_);
  Code code = ok;
  auto* graph = static_cast<Graph*>(handle_of(handle, Kind::graph, &code));
  if (graph == nullptr) return code;
  graph->live = false;
  for (Node* node : graph->nodes) node->live = false;
  return ok;
}

Code Machine::destroy_executable(void* handle) {
  if (!execute_) return ok;
  std::lock_guard hold(lock_);
  Code code = ok;
  auto* executable = static_cast<Executable*>(handle_of(handle, Kind::executable, &code));
  if (executable == nullptr) return code;
  if (executable->context->sticky == ok && executable->context->deferred == ok)
    for (const auto& [stream, sequence] : executable->used)
      if (host_clock_[stream] < sequence) {
        breach_locked("a graph is destroyed before the host has waited for its last launch", ok);
        break;
      }
  executable->live = false;
  return ok;
}

Code Machine::launch_graph(Context& context, void* handle, Stream& stream) {
  if (!execute_) return ok;
  std::vector<Work> work;
  Executable* executable = nullptr;
  {
    std::lock_guard hold(lock_);
    Code code = ok;
    executable = static_cast<Executable*>(handle_of(handle, Kind::executable, &code));
    if (executable == nullptr) return code;
    if (executable->context != &context) return breach_locked("the graph belongs to another device", invalid_handle);
    if (stream.capture != nullptr) return breach_locked("a graph is launched into a captured stream", not_supported);
    if (const Code struck = faults_.strikes("graph-launch", ++counts_["graph launches"], invalid_value, context.device);
        struck != ok)
      return struck;
    for (const Work& w : executable->work) {
      if (w.module != nullptr && !w.module->live)
        return breach_locked("a graph launches " + w.what + ", whose module has been unloaded", invalid_handle);
      for (const Touch& touch : w.touches)
        if (!touch.memory->live) {
          context.sticky = illegal_address;
          changed_.notify_all();
          return breach_locked("a graph's " + w.what + " touches memory that has been freed", illegal_address);
        }
    }
    work = executable->work;
  }
  for (Work& w : work)
    if (const Code code = enqueue(stream, std::move(w), false); code != ok) return code;
  std::lock_guard hold(lock_);
  executable->used[stream.id] = stream.submitted;
  return ok;
}

Code Machine::set_kernel_node(Context& context, void* handle, void* node_handle, Function& function, Dimensions grid,
                              Dimensions block, std::uint32_t shared_bytes, void** parameters, void** extra) {
  if (!execute_) return ok;
  Executable* executable = nullptr;
  std::size_t place = 0;
  {
    std::lock_guard hold(lock_);
    Code code = ok;
    executable = static_cast<Executable*>(handle_of(handle, Kind::executable, &code));
    if (executable == nullptr) return code;
    auto* node = static_cast<Node*>(handle_of(node_handle, Kind::node, &code));
    if (node == nullptr) return code;
    while (place < executable->nodes.size() && executable->nodes[place] != node) ++place;
    if (place == executable->nodes.size())
      return breach_locked("the node does not belong to the instantiated graph", invalid_value);
    if (executable->work[place].module == nullptr) return breach_locked("the node launches no kernel", invalid_value);
    if (executable->work[place].module->context != function.context)
      return breach_locked("a node changes to a kernel of another device", invalid_value);
  }
  Work work;
  if (const Code code = prepare_launch(context, function, grid, block, shared_bytes, parameters, extra, {}, &work);
      code != ok)
    return code;
  std::lock_guard hold(lock_);
  --counts_["launches"];
  ++counts_["node changes"];
  executable->work[place] = std::move(work);
  return ok;
}

}  // namespace tessera::fake
