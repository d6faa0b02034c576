// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/fused.h"

#include <algorithm>
#include <atomic>

#include "tessera/array/array.h"
#include "tessera/array/cached_expression.h"
#include "tessera/array/cached_operation.h"
#include "tessera/array/min_max.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"

namespace tessera {

namespace {
std::atomic<std::uint64_t> launches{0};
}
std::uint64_t fused_launches() { return launches.load(); }

namespace detail {

void count_fused_launch() { ++launches; }

std::uint64_t parameter_bytes(std::uint64_t views, std::uint64_t scalars, std::size_t rank) {
  return 16 * (views + 1) + 8 * (scalars + rank * (views + 2));
}

std::size_t Structure::hash() const {
  std::uint64_t h = rank | std::uint64_t{reduced} << 8 | std::uint64_t{form} << 16 | std::uint64_t{reduction} << 24 |
                    std::uint64_t{threads} << 32;
  auto mix = [&](std::uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 31; };
  for (const Node& n : nodes) {
    mix(static_cast<std::uint64_t>(n.op) | std::uint64_t{n.sub} << 8 | static_cast<std::uint64_t>(n.dtype) << 16);
    mix(static_cast<std::uint16_t>(n.args[0]) | std::uint64_t{static_cast<std::uint16_t>(n.args[1])} << 16 |
        std::uint64_t{static_cast<std::uint16_t>(n.args[2])} << 32);
  }
  for (DType t : inputs) mix(static_cast<std::uint64_t>(t));
  for (DType t : outputs) mix(static_cast<std::uint64_t>(t) | 0x100);
  for (auto n : output_nodes) mix(static_cast<std::uint64_t>(n));
  for (auto c : strides) mix(c);
  return h;
}

int Fused::input(StridedView view) {
  std::size_t i = 0;
  for (; i < inputs_.size(); ++i)
    if (inputs_[i] == view) break;
  if (i == inputs_.size()) {
    structure_.inputs.push_back(view.dtype);
    inputs_.push_back(std::move(view));
  }
  for (std::size_t n = 0; n < structure_.nodes.size(); ++n)
    if (structure_.nodes[n].op == ir::Op::load && structure_.nodes[n].args[0] == static_cast<int>(i))
      return static_cast<int>(n);
  structure_.nodes.push_back({ir::Op::load, 0, inputs_[i].dtype, {static_cast<std::int16_t>(i), -1, -1}});
  return static_cast<int>(structure_.nodes.size() - 1);
}

int Fused::scalar(DType dtype, std::uint64_t bits) {
  structure_.nodes.push_back({ir::Op::param, 0, dtype, {static_cast<std::int16_t>(scalars_.size()), -1, -1}});
  structure_.scalars.push_back(dtype);
  scalars_.push_back(bits);
  return static_cast<int>(structure_.nodes.size() - 1);
}

int Fused::operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const int> args) {
  Structure::Node n{op, sub, dtype};
  for (std::size_t i = 0; i < args.size(); ++i) n.args[i] = static_cast<std::int16_t>(args[i]);
  ++operations_;
  structure_.nodes.push_back(n);
  return static_cast<int>(structure_.nodes.size() - 1);
}

void Fused::rollback(const Mark& mark) {
  structure_.nodes.resize(mark.nodes);
  structure_.inputs.resize(mark.inputs), inputs_.resize(mark.inputs);
  structure_.scalars.resize(mark.scalars), scalars_.resize(mark.scalars);
  operations_ = mark.operations;
}

void Fused::output(int node, StridedView view) {
  structure_.output_nodes.push_back(static_cast<std::int16_t>(node));
  structure_.outputs.push_back(view.dtype);
  outputs_.push_back(std::move(view));
}

Fused::Dimensions Fused::merge(const Shape& shape, const std::vector<bool>& reduced) {
  const std::size_t views = inputs_.size() + outputs_.size();
  const auto view = [&](std::size_t v) -> StridedView& {
    return v < inputs_.size() ? inputs_[v] : outputs_[v - inputs_.size()];
  };
  Shape extents;
  extents.reserve(shape.size() + 1);
  // for each merged dimension: the innermost dimension of `shape` that it contains; its strides are used
  InlineVector<std::size_t, 8> from;
  constexpr std::size_t none = ~std::size_t{0};  // marks a dimension of extent 1 that was inserted
  std::size_t count = 0;                         // number of merged dimensions that are reduced
  // Dimensions that are kept come before those that are reduced. Dimensions of extent 1 are dropped, and adjacent
  // dimensions are merged if they are contiguous in every view.
  for (int pass = 0; pass < (reduced.empty() ? 1 : 2); ++pass)
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool r = !reduced.empty() && reduced[d];
      if (r != (pass == 1) || shape[d] == 1) continue;
      bool joins = !extents.empty() && (count != 0) == r;
      for (std::size_t v = 0; v < views && joins; ++v)
        joins = view(v).strides[from.back()] == view(v).strides[d] * shape[d];
      if (joins) {
        extents.back() *= shape[d];
        from.back() = d;
      } else {
        extents.push_back(shape[d]);
        from.push_back(d);
        if (r) ++count;
      }
    }
  if (extents.size() == count) {  // ensures at least one kept dimension
    extents.insert(extents.begin(), 1);
    from.insert(from.begin(), none);
  }
  if (!reduced.empty() && count == 0) {  // ensures at least one reduced dimension
    extents.push_back(1);
    from.push_back(none);
    count = 1;
  }
  const std::size_t rank = extents.size();
  structure_.rank = static_cast<std::uint8_t>(rank);
  structure_.reduced = static_cast<std::uint8_t>(count);
  structure_.strides.clear();
  InlineVector<std::int64_t, 8> merged(rank);
  for (std::size_t v = 0; v < views; ++v) {
    Strides& strides = view(v).strides;
    for (std::size_t d = 0; d < rank; ++d) {
      merged[d] = from[d] == none ? 0 : strides[from[d]];
      structure_.strides.push_back(merged[d] == 0 ? Structure::zero : merged[d] == 1 ? Structure::one : Structure::any);
    }
    strides.assign(merged.begin(), merged.end());
  }
  return {std::move(extents), count};
}

BufferView Fused::range(const StridedView& view, const Shape& extents) const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < extents.size(); ++d) last += (extents[d] - 1) * view.strides[d];
  return {view.storage, static_cast<std::uint64_t>(view.offset) * dtype_size(view.dtype),
          static_cast<std::uint64_t>(last + 1), view.dtype};
}

std::pmr::vector<LaunchArgument> Fused::arguments(const Dimensions& dimensions) {
  std::pmr::vector<LaunchArgument> out(&arena_);
  out.reserve((inputs_.size() + outputs_.size()) * (1 + dimensions.extents.size()) + scalars_.size() +
              dimensions.extents.size() + 4);  // Reserves space for the arguments that a reduction appends.
  for (const auto& v : inputs_) out.emplace_back(range(v, dimensions.extents));
  for (const auto& v : outputs_) out.emplace_back(range(v, dimensions.extents));
  for (std::size_t i = 0; i < scalars_.size(); ++i)
    out.push_back(LaunchArgument::scalar(structure_.scalars[i], scalars_[i]));
  for (auto e : dimensions.extents) out.push_back(LaunchArgument::index(e));
  std::size_t at = 0;
  auto strides = [&](const StridedView& v) {
    for (std::size_t d = 0; d < dimensions.extents.size(); ++d, ++at)
      if (structure_.strides[at] == Structure::any) out.push_back(LaunchArgument::index(v.strides[d]));
  };
  for (const auto& v : inputs_) strides(v);
  for (const auto& v : outputs_) strides(v);
  return out;
}

FusedTrace::FusedTrace(const Structure& s) : s_(s) {
  for (std::size_t i = 0; i < s.inputs.size(); ++i)
    inputs_.push_back(ir::buffer_param("in" + std::to_string(i), s.inputs[i], ir::Access::read));
  for (std::size_t i = 0; i < s.outputs.size(); ++i)
    outputs_.push_back(ir::buffer_param("out" + std::to_string(i), s.outputs[i], ir::Access::read_write));
  for (std::size_t i = 0; i < s.scalars.size(); ++i)
    scalars_.push_back(ir::scalar_param("s" + std::to_string(i), s.scalars[i]));
  for (std::size_t d = 0; d < s.rank; ++d) extents_.push_back(ir::scalar_param("n" + std::to_string(d), DType::index));
  for (std::size_t i = 0; i < s.strides.size(); ++i)
    strides_.push_back(
        s.strides[i] == Structure::any
            ? ir::scalar_param("stride" + std::to_string(i / s.rank) + "_" + std::to_string(i % s.rank), DType::index)
        : s.strides[i] >= Structure::two ? ir::index_literal(s.strides[i])
                                         : ir::Value{});
}

ir::Value FusedTrace::position(std::size_t view, std::span<const ir::Value> coordinates) const {
  ir::Value sum;
  for (std::size_t d = 0; d < s_.rank; ++d) {
    const auto c = s_.strides[view * s_.rank + d];
    if (c == Structure::zero) continue;
    const ir::Value part = c == Structure::one ? coordinates[d] : coordinates[d] * strides_[view * s_.rank + d];
    sum = sum.valid() ? sum + part : part;
  }
  return sum.valid() ? sum : ir::index_literal(0);
}

std::vector<ir::Value> FusedTrace::evaluate(std::span<const ir::Value> coordinates) const {
  std::vector<ir::Value> values;
  auto arg = [&](const Structure::Node& n, int i) {
    return values[static_cast<std::size_t>(n.args[static_cast<std::size_t>(i)])];
  };
  for (const Structure::Node& n : s_.nodes) {
    switch (n.op) {
      case ir::Op::load: {
        const auto i = static_cast<std::size_t>(n.args[0]);
        values.push_back(inputs_[i].load(position(i, coordinates)));
        break;
      }
      case ir::Op::param: values.push_back(scalars_[static_cast<std::size_t>(n.args[0])]); break;
      case ir::Op::unary: values.push_back(ir::unary(static_cast<ir::UnaryOp>(n.sub), arg(n, 0))); break;
      case ir::Op::binary: {
        const auto op = static_cast<ir::BinaryOp>(n.sub);
        const bool ordered = op == ir::BinaryOp::min || op == ir::BinaryOp::max;
        values.push_back(ordered ? min_or_max(op, arg(n, 0), arg(n, 1)) : ir::binary(op, arg(n, 0), arg(n, 1)));
        break;
      }
      case ir::Op::compare:
        values.push_back(ir::compare(static_cast<ir::CompareOp>(n.sub), arg(n, 0), arg(n, 1)));
        break;
      case ir::Op::select: values.push_back(ir::select(arg(n, 0), arg(n, 1), arg(n, 2))); break;
      case ir::Op::cast: values.push_back(ir::cast(n.dtype, arg(n, 0))); break;
      case ir::Op::bitcast: values.push_back(ir::bitcast(n.dtype, arg(n, 0))); break;
      default:
        values.push_back(n.args[1] >= 0 ? ir::math(static_cast<ir::MathOp>(n.sub), arg(n, 0), arg(n, 1))
                                        : ir::math(static_cast<ir::MathOp>(n.sub), arg(n, 0)));
    }
    // 16-bit floats are computed in f32. The result of each operation is rounded as if it had been stored.
    if (n.op != ir::Op::param && values.back().dtype() != n.dtype) values.back() = ir::cast(n.dtype, values.back());
  }
  return values;
}

std::string operation_names(const Structure& s) {
  std::string out;
  int count = 0;
  for (const Structure::Node& n : s.nodes) {
    std::string_view name;
    switch (n.op) {
      case ir::Op::unary: name = ir::name_of(static_cast<ir::UnaryOp>(n.sub)); break;
      case ir::Op::binary: name = ir::name_of(static_cast<ir::BinaryOp>(n.sub)); break;
      case ir::Op::compare: name = ir::name_of(static_cast<ir::CompareOp>(n.sub)); break;
      case ir::Op::math: name = ir::name_of(static_cast<ir::MathOp>(n.sub)); break;
      case ir::Op::select:
      case ir::Op::cast:
      case ir::Op::bitcast: name = ir::op_name(n.op); break;
      default: continue;
    }
    if (++count > 4) continue;
    out += (out.empty() ? "" : "_") + std::string(name);
  }
  if (count > 4) out += "_and_" + std::to_string(count - 4) + "_more";
  return out.empty() ? "copy" : out;
}

namespace {

static_assert(Structure::two == 2 && Structure::four == 4);  // The value of each of these classes is its stride.

// Structure::form of a map kernel. In the last three, a thread computes several elements of a row on a GPU, so that it
// has 16 bytes of an input in flight.
enum Form : std::uint8_t { by_dimensions, linear, two_elements, four_elements, eight_elements };
int elements_of(std::uint8_t form) { return form < two_elements ? 1 : 2 << (form - two_elements); }

struct MapSpec {
  std::shared_ptr<const Structure> structure;
  friend bool operator==(const MapSpec& a, const MapSpec& b) { return *a.structure == *b.structure; }
  std::size_t hash() const { return structure->hash(); }
};

// One thread per element, or for several elements of the innermost dimension. Up to three merged dimensions are
// dimensions of the launch, innermost first. If there are more, the outer ones are combined in the third. The linear
// form uses only the first dimension of the launch.
ir::Function trace_map(const MapSpec& spec) {
  const Structure& s = *spec.structure;
  ir::Builder builder("fused_" + operation_names(s), ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const FusedTrace trace(s);
  std::vector<ir::Value> coordinates(s.rank);
  const std::size_t r = s.rank;
  // Converts a linear position to coordinates of dimensions 0 to `last`.
  auto unravel = [&](ir::Value rest, std::size_t last) {
    for (std::size_t d = last; d > 0; --d) {
      coordinates[d] = rest % trace.extent(d);
      rest = rest / trace.extent(d);
    }
    coordinates[0] = rest;
  };
  if (s.form == linear) {
    unravel(ir::global_id(0), r - 1);
  } else {
    coordinates[r - 1] = ir::global_id(0);
    if (r >= 2) coordinates[r - 2] = ir::global_id(1);
    if (r >= 3) unravel(ir::global_id(2), r - 3);
  }
  const auto store = [&](const std::vector<ir::Value>& values) {
    for (std::size_t i = 0; i < s.outputs.size(); ++i) {
      ir::Value v = values[static_cast<std::size_t>(s.output_nodes[i])];
      if (v.dtype() != s.outputs[i]) v = ir::cast(s.outputs[i], v);
      trace.output(i).store(trace.position(s.inputs.size() + i, coordinates), v);
    }
  };
  const int count = elements_of(s.form);
  if (count == 1) {
    store(trace.evaluate(coordinates));
    return builder.finish();
  }
  // Adjacent threads compute adjacent elements. All elements are loaded before any is stored.
  const ir::Value first = coordinates[r - 1], step = ir::extent(0), end = trace.extent(r - 1);
  const auto move_to = [&](int k) { coordinates[r - 1] = k == 0 ? first : first + step * k; };
  ir::if_(
      first + step * (count - 1) < end,
      [&] {
        std::vector<std::vector<ir::Value>> values;
        for (int k = 0; k < count; ++k) move_to(k), values.push_back(trace.evaluate(coordinates));
        for (int k = 0; k < count; ++k) move_to(k), store(values[static_cast<std::size_t>(k)]);
      },
      [&] {
        for (int k = 0; k < count; ++k) {
          move_to(k);
          if (k == 0)
            store(trace.evaluate(coordinates));
          else
            ir::if_(coordinates[r - 1] < end, [&] { store(trace.evaluate(coordinates)); });
        }
      });
  return builder.finish();
}

/// Returns the form in which threads of a GPU compute several elements, or by_dimensions if that is not faster: the
/// kernel has no inputs, its rows are short, or there would be too few threads.
Form several_elements(Device device, const Structure& s, const Shape& extents) {
  constexpr std::int64_t shortest_row = 1024, fewest = 1 << 20;
  constexpr std::size_t most_nodes = 24;  // more nodes need many registers per element
  const DeviceKind kind = device_info(device).kind;
  if ((kind != DeviceKind::discrete_gpu && kind != DeviceKind::integrated_gpu) || s.inputs.empty() ||
      s.nodes.size() > most_nodes || extents.back() < shortest_row || element_count(extents) < fewest)
    return by_dimensions;
  std::size_t bytes = 8;
  for (const DType t : s.inputs) bytes = std::min(bytes, dtype_size(t));
  return bytes <= 2 && s.nodes.size() <= most_nodes / 2 ? eight_elements : bytes <= 4 ? four_elements : two_elements;
}

// True if the device may reject this launch because of its outer dimensions but would accept the same number of threads
// in x only. A block of a map kernel can have 256 threads in y or 64 in z (with one thread in x), independent of the
// registers that it needs.
bool needs_linear(Device device, const std::array<std::uint64_t, 3>& threads) {
  constexpr std::uint64_t everywhere = 65535;  // the maximum number of blocks in y and z that all APIs accept
  if (is_built_in(kernel_backend(device)) || (threads[1] <= everywhere * 256 && threads[2] <= everywhere * 64))
    return false;
  const Capabilities& can = device_info(device).can;
  const auto takes = [&](std::size_t dimension, std::uint64_t n, std::uint64_t block) {
    return n <= can.max_grid_threads[dimension] / block * block && (n - 1) / block < can.max_blocks[dimension];
  };
  return !(takes(1, threads[1], 256) && takes(2, threads[2], 64)) &&
         takes(0, threads[0] * threads[1] * threads[2], 256);
}

const Kernel& kernel_of(const Structure& structure) {
  // Leaked on purpose: kernels may still be used during process exit.
  static auto& family = *new KernelFamily<MapSpec>(trace_map);
  // The lookup uses the structure without copying it. It is copied only for a new kernel.
  const Kernel* known = family.find(MapSpec{std::shared_ptr<const Structure>(std::shared_ptr<void>(), &structure)});
  return known != nullptr ? *known : family(MapSpec{std::make_shared<const Structure>(structure)});
}

/// Calls `launched(kernel, threads, arguments)` after the launch.
template <class L>
void run_map(Fused& fused, const Shape& shape, L&& launched) {
  if (element_count(shape) == 0) return;
  const Device device = fused.device();
  Structure& structure = fused.structure();
  const Fused::Dimensions dims = fused.merge(shape, {});
  const Shape& e = dims.extents;
  std::array<std::uint64_t, 3> threads = {1, 1, 1};
  for (std::size_t i = 0; i < e.size(); ++i)
    threads[std::min<std::size_t>(i, 2)] *= static_cast<std::uint64_t>(e[e.size() - 1 - i]);
  structure.form = several_elements(device, structure, e);
  if (const int count = elements_of(structure.form); count > 1) threads[0] = (threads[0] - 1) / count + 1;
  if (needs_linear(device, threads)) {
    structure.form = linear;
    threads = {static_cast<std::uint64_t>(element_count(shape)), 1, 1};
  }
  if (blocks_are_vectors(kernel_backend(device))) {
    const auto &inputs = fused.inputs(), &outputs = fused.outputs();
    for (std::size_t v = 0; v < inputs.size() + outputs.size(); ++v) {
      const std::int64_t stride = (v < inputs.size() ? inputs[v] : outputs[v - inputs.size()]).strides[e.size() - 1];
      if (stride >= 2 && stride <= 4) structure.strides[(v + 1) * e.size() - 1] = static_cast<std::uint8_t>(stride);
    }
  }
  const Kernel& kernel = kernel_of(structure);
  const auto args = fused.arguments(dims);
  count_fused_launch();
  kernel.launch(threads, std::span(args));
  launched(kernel, threads, std::span<const LaunchArgument>(args));
}

}  // namespace

void Fused::run(const Shape& shape, const CachedExpression* repeated) {
  run_map(*this, shape, [&](const Kernel& kernel, const auto& threads, auto arguments) {
    if (repeated != nullptr) repeated->keep(kernel, threads, arguments);
  });
}

void run(Fused& fused, const Array& out, const CachedOperation& repeated) {
  run_map(fused, out.shape(), [&](const Kernel& kernel, const auto& threads, auto arguments) {
    repeated.keep(out, {.kernel = kernel, .shape = threads, .arguments = arguments});
  });
}

}  // namespace detail
}  // namespace tessera
