// SPDX-License-Identifier: Apache-2.0
// Records work as a graph. It is captured from the queue's own stream, so recording makes the same driver calls as
// execution.
#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "tessera/backend/stream/device.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/device/blas.h"
#include "tessera/device/driver.h"

namespace tessera::stream {

StreamSequence::~StreamSequence() {
  try {
    const ContextScope in(device_);
    if (executable_) device_.api().destroy_executable(executable_);
    if (graph_) device_.api().destroy_graph(graph_);
  } catch (...) {  // the device is lost, so there is no graph to destroy
  }
}

std::unique_ptr<DriverSequence> StreamQueue::capture(std::span<const RecordedWork> work) {
  const Api& api = device_.api();
  // The owner of a wrapped stream may be capturing it, or the stream may not support capture.
  if (!owned_) return nullptr;
  const ContextScope in(device_);
  if (!api.graphs()) return nullptr;
  for (const RecordedWork& w : work) {
    if (w.changing && !api.changing_nodes()) return nullptr;
    for (const Allocation* a : {&w.to, &w.from})
      if (a->handle == nullptr && a->host != nullptr) return nullptr;  // pinned memory is not supported here
  }
  // A vendor's library may be unable to work in a capture. The work is then submitted piece by piece.
  const bool calls_library =
      std::ranges::any_of(work, [](const RecordedWork& w) { return w.kind == RecordedWork::product; });
  const auto give_up = [](const std::string& why) {
    static std::atomic<bool> warned = false;
    if (!warned.exchange(true))
      logging::warn(
          fmt::format("recorded work with matrix products of the vendor's library is submitted piece by piece, not as "
                      "one graph: {}. "
                      "TESSERA_BLAS=off uses Tessera's products, which can be recorded as a graph",
                      why));
    return nullptr;
  };
  auto sequence = std::make_unique<StreamSequence>(device_);
  StreamSequence& s = *sequence;
  const bool busy = busy_;  // a capture submits no work
  device_.check(api.begin_capture(stream_), "capturing a sequence");
  try {
    for (std::size_t i = 0; i < work.size(); ++i) {
      const RecordedWork& w = work[i];
      switch (w.kind) {
        case RecordedWork::launch: launch(*w.kernel, w.shape, w.arguments); break;
        case RecordedWork::product: w.vendor_product->enqueue(*this, w.arguments); break;
        case RecordedWork::copy: copy(w.to, w.to_offset, w.from, w.from_offset, w.bytes); break;
        case RecordedWork::fill: fill(w.to, w.to_offset, w.bytes, std::span(w.pattern).first(w.pattern_bytes)); break;
      }
      if (!w.changing) continue;
      Handle node = nullptr;
      device_.check(api.newest_node(stream_, &node), "capturing a sequence");
      s.nodes_.emplace_back(static_cast<std::uint32_t>(i), node);
    }
  } catch (const KernelError& e) {
    busy_ = busy;
    api.drop_capture(stream_);
    if (!calls_library) throw;
    return give_up(e.what());
  } catch (...) {
    busy_ = busy;
    api.drop_capture(stream_);
    throw;
  }
  busy_ = busy;
  const Code code = api.end_capture(stream_, &s.graph_);
  if (code != success && calls_library && api.fault_of(code) != Fault::memory) return give_up(api.code_text(code));
  device_.check(code, "capturing a sequence");
  device_.check(api.instantiate(s.graph_, &s.executable_), "instantiating the graph of a sequence");
  if (s.nodes_.empty()) {
    api.destroy_graph(s.graph_);
    s.graph_ = nullptr;
  }
  return sequence;
}

void StreamQueue::replay(DriverSequence& sequence, std::span<const RecordedWork> work,
                         std::span<const std::uint32_t> changed) {
  auto& s = static_cast<StreamSequence&>(sequence);
  const ContextScope in(device_, std::exchange(s.known_, true) ? ContextScope::enqueuing : ContextScope::anything);
  for (const std::uint32_t place : changed)
    for (const auto& [at, node] : s.nodes_)
      if (at == place)
        static_cast<StreamKernel&>(*work[at].kernel).set_node(s.executable_, node, work[at].shape, work[at].arguments);
  busy_ = true;
  device_.check(device_.api().launch_graph(s.executable_, stream_), "launching a sequence");
}

}  // namespace tessera::stream
