// SPDX-License-Identifier: Apache-2.0
// State of a compiled model: its pass and the recordings of that pass. Internal.
#pragma once

#include <array>
#include <mutex>

#include "tessera/device/queue/checked_sequence.h"
#include "tessera/nn/compile.h"

namespace tessera::detail {

struct CompiledState {
  static constexpr std::size_t max_shapes = 4;
  struct Slot {
    Array input, output;
    CheckedSequence sequence{16};
    std::string not_recorded_reason;  ///< why calls with this shape are not recorded
    std::uint64_t last_use = 0;
  };

  Device device;
  CompileLevel level = CompileLevel::standard;
  Pass pass;
  std::map<std::string, std::string> notes;

  std::mutex lock;  // guards the members below
  CompileReport report;
  SequencePool pool;
  std::vector<std::unique_ptr<Slot>> slots;
  std::uint64_t uses = 0, replays = 0;

  Array call(const Array& x);
  Slot& slot_for(const Array& x);
  /// Runs the pass without a recording. The first call also profiles the layers.
  Array run(const Array& x);
  void look_at(const Array& x);
  void run_recorded(Slot& slot);
};

/// Input and output of one layer.
struct LayerTrace {
  ObservedLayer layer;
  Array layer_input, layer_output;
};
std::vector<LayerTrace> trace_layers(const Pass& pass, const Array& x, Array* result);

}  // namespace tessera::detail
