// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, and the function that stores rows in a KV cache.
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <sstream>
#include <tuple>

#include "tessera/base/os/fork.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/ir/semantics.h"
#include "tessera/ops/cache_buffer.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/layer_kernels.h"

namespace tessera {

using ops::RotarySpec;
using ops::StoreSpec;

Position::Position(Array in_memory) {
  if (in_memory.dtype() != DType::i32)
    fail<DtypeError>({.operation = "Position",
                      .with = {{"dtype", std::string(dtype_name(in_memory.dtype()))}},
                      .wrong = "the array that contains the position must have dtype i32"});
  if (in_memory.size() != 1 || !in_memory.contiguous())
    fail<ShapeError>({.operation = "Position",
                      .with = {{"shape", to_string(in_memory.shape())}},
                      .wrong = "the array that contains the position must have exactly one element"});
  memory_ = std::move(in_memory);
}

Position Position::each(Array in_memory) {
  if (in_memory.dtype() != DType::i32)
    fail<DtypeError>({.operation = "Position::each",
                      .with = {{"dtype", std::string(dtype_name(in_memory.dtype()))}},
                      .wrong = "the array that contains the positions must have dtype i32"});
  if (in_memory.rank() != 1 || !in_memory.contiguous())
    fail<ShapeError>({.operation = "Position::each",
                      .with = {{"shape", to_string(in_memory.shape())}},
                      .wrong = "the array that contains the positions must be contiguous, with one axis"});
  Position p(0);
  p.memory_ = std::move(in_memory), p.is_each_ = true;
  return p;
}

namespace ops {

PositionParameter::PositionParameter(const char* name, bool in_memory) {
  if (in_memory)
    memory_ = ir::buffer_param(name, DType::i32, ir::Access::read);
  else
    number_ = ir::scalar_param(name, DType::index);
}
ir::Value PositionParameter::get() const { return number_.valid() ? number_ : at(ir::index_literal(0)); }
ir::Value PositionParameter::at(ir::Value token) const { return ir::cast(DType::index, memory_.load(token)); }
void require_consecutive(const char* operation, const Position& position) {
  if (position.is_each())
    fail<ArgumentError>({.operation = operation, .wrong = "the tokens must have consecutive positions"});
}
LaunchArgument argument(const Position& position) {
  if (position.in_memory()) return LaunchArgument(position.memory().view());
  return LaunchArgument::index(position.number());
}

// Angles are exact for every position. A frequency is stored in turns per position: as a 32-bit fraction, which wraps
// like an angle, and the remainder as f32.
RotaryParameters::RotaryParameters(const RotarySpec& s) : spec(s) {
  // one number per pair, in units of 2^-32 turns per position
  turns = ir::buffer_param("turns", DType::u32, ir::Access::read);
  // one remainder per pair, then one full value per pair
  rest_turns = ir::buffer_param("rest_turns", DType::f32, ir::Access::read);
  if (spec.factors) factors = ir::buffer_param("factors", DType::f32, ir::Access::read);
  pairs = ir::scalar_param("pairs", DType::index);
  if (spec.magnitude) magnitude = ir::scalar_param("magnitude", DType::f32);
}

std::pair<ir::Value, ir::Value> RotaryParameters::rotate(ir::Value i, ir::Value position, ir::Value u,
                                                         ir::Value v) const {
  const ir::Value whole =
      ir::cast(DType::f32, ir::bitcast(DType::i32, turns.load(i) * ir::cast(DType::u32, position))) * 0x1p-32;
  const ir::Value real_position = ir::cast(DType::f32, position);
  ir::Value angle = ir::fma(real_position, rest_turns.load(i), whole);
  if (spec.factors) {
    const ir::Value factor = factors.load(i);
    const ir::Value slow = real_position * (rest_turns.load(pairs + i) / factor);
    angle = ir::select(factor == 1, angle, slow - ir::rint(slow));
  }
  angle = angle * static_cast<float>(2 * std::numbers::pi);
  ir::Value c = ir::cos(angle), s = ir::sin(angle);
  if (spec.magnitude) c = c * magnitude, s = s * magnitude;
  return {u * c - v * s, u * s + v * c};
}

// The launch dimensions are: pairs and elements that are not rotated; heads; tokens.
ir::Function trace_rotary(const RotarySpec& spec) {
  const bool adjacent = spec.pairs == RotaryPairs::adjacent;
  ir::Builder builder(adjacent ? "rotary_adjacent" : "rotary_halves", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", spec.x, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.x, ir::Access::read_write);
  const RotaryParameters rotary(spec);
  const ir::Value head_size = ir::scalar_param("head_size", DType::index);
  const PositionParameter first_position("first_position", spec.in_memory);  // or one for each token
  const ir::Value token_stride = ir::scalar_param("token_stride", DType::index),
                  head_stride = ir::scalar_param("head_stride", DType::index);
  const ir::Value i = ir::global_id(0), head = ir::global_id(1), token = ir::global_id(2);
  const ir::Value from = token * token_stride + head * head_stride, to = (token * ir::extent(1) + head) * head_size;
  auto rotate = [&] {
    const ir::Value a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + rotary.pairs;
    const ir::Value position = spec.each ? first_position.at(token) : first_position.get() + token;
    const auto [u, v] = rotary.rotate(i, position, load_at(x, from + a, {}), load_at(x, from + b, {}));
    out.store(to + a, ir::cast(spec.x, u));
    out.store(to + b, ir::cast(spec.x, v));
  };
  if (spec.rest)
    ir::if_(i < rotary.pairs, rotate, [&] { out.store(to + rotary.pairs + i, x.load(from + rotary.pairs + i)); });
  else
    rotate();
  return builder.finish();
}

// The launch dimensions are: elements of a head, or its blocks of 32 in a cache of i8; heads; tokens.
ir::Function trace_cache_store(const StoreSpec& spec) {
  ir::Builder builder("cache_store", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto rows = ir::buffer_param("rows", spec.rows, ir::Access::read);
  const auto cache = ir::buffer_param("cache", spec.cache, ir::Access::read_write);
  const bool quantised = spec.cache == DType::i8;
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  const PositionParameter position("position", spec.in_memory);
  const ir::Value token_stride = number("token_stride"), head_stride = number("head_stride");
  const ir::Value cache_head = number("cache_head_stride"), cache_row = number("cache_row_stride");
  const ir::Value i = ir::global_id(0), head = ir::global_id(1), token = ir::global_id(2);
  const ir::Value from = token * token_stride + head * head_stride,
                  to = head * cache_head + (position.get() + token) * cache_row;
  if (!quantised) {
    cache.store(to + i, ir::cast(spec.cache, load_at(rows, from + i, {})));
    return builder.finish();
  }
  std::vector<ir::Value> values;
  for (int n = 0; n < cache_block; ++n) values.push_back(load_at(rows, from + i * cache_block + n, {}));
  const RoundedBlock block(values);
  for (int n = 0; n < cache_block; ++n)
    cache.store(to + i * cache_block + n, block.numbers[static_cast<std::size_t>(n)]);
  const ir::Value scale = to + ir::extent(0) * cache_block + i * 2;
  for (int n = 0; n < 2; ++n) cache.store(scale + n, block.scale[n]);
  return builder.finish();
}

}  // namespace ops

namespace {

// The turns per position of each pair, on one device: 32-bit fractions, remainders, and full values.
struct Frequencies {
  Array turns, rest;
};

Frequencies frequencies(Device device, std::int64_t dimensions, float base, float scale) {
  using Key = std::tuple<Device, std::int64_t, float, float>;
  struct Known {
    std::mutex lock;
    std::map<Key, Frequencies> all;
  };
  static constinit os::PerProcess<Known> the_known;
  auto& [lock, known] = the_known.get();
  const Key key{device, dimensions, base, scale};
  std::lock_guard guard(lock);
  if (auto it = known.find(key); it != known.end()) return it->second;
  const auto pairs = static_cast<std::size_t>(dimensions / 2);
  std::vector<std::uint32_t> turns(pairs);
  std::vector<float> rest(2 * pairs);
  for (std::size_t p = 0; p < pairs; ++p) {
    const double f =
        static_cast<double>(scale) *
        std::pow(static_cast<double>(base), -2.0 * static_cast<double>(p) / static_cast<double>(dimensions)) /
        (2 * std::numbers::pi);
    const double fixed = std::nearbyint((f - std::floor(f)) * 0x1p32);
    turns[p] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(fixed));
    rest[p] = static_cast<float>((f - std::floor(f)) - fixed * 0x1p-32);
    rest[pairs + p] = static_cast<float>(f);
  }
  if (known.size() >= 64) known.clear();  // Real programs have few models, but tests with many shapes reach this limit.
  const Recorder::Pause pause(true);      // not recorded, because the table is the same for every replay
  return known[key] = {Array::from(turns, {}, device), Array::from(rest, {}, device)};
}

// Returns x if its last stride is 1, otherwise a contiguous copy.
Array rows_of(const Array& x) { return x.strides()[2] == 1 || x.shape()[2] == 1 ? x : x.copy(); }

void check_rows_match(const char* operation, const char* name, const Array& x) {
  if (x.rank() != 3)
    fail<ShapeError>({.operation = operation,
                      .with = {{name, to_string(x.shape())}},
                      .wrong = "the shape is not (tokens, heads, head size)"});
  if (!is_float(x.dtype()) || x.dtype() == DType::f64)
    fail<DtypeError>({.operation = operation,
                      .with = {{name, std::string(dtype_name(x.dtype()))}},
                      .wrong = "the dtype is not f32, f16 or bf16",
                      .remedy = "Use astype"});
}

}  // namespace

namespace ops {

void check_rotary(const Rotary& how, std::int64_t head_size, const Position& first_position, std::int64_t tokens,
                  Device device) {
  const std::int64_t dimensions = how.dimensions == 0 ? head_size : how.dimensions;
  if (dimensions < 0 || dimensions % 2 || dimensions > head_size)
    fail<ShapeError>({.operation = "rotary",
                      .with = {{"dimensions", std::to_string(dimensions)}, {"head size", std::to_string(head_size)}},
                      .wrong = "the number of rotated dimensions must be even and at most the head size"});
  // Outside these limits, a frequency or its table would not be finite.
  if (!(how.base >= 1e-9f && how.base <= 1e30f) || !(std::abs(how.scale) <= 1e9f) ||
      !(std::abs(how.magnitude) <= 1e9f)) {
    std::ostringstream base, scale, magnitude;
    base << how.base, scale << how.scale, magnitude << how.magnitude;
    fail<ArgumentError>({.operation = "rotary",
                         .with = {{"base", base.str()}, {"scale", scale.str()}, {"magnitude", magnitude.str()}},
                         .wrong = "the base must be between 1e-9 and 1e30, and scale and magnitude at most 1e9"});
  }
  if (how.factors &&
      (how.factors->rank() != 1 || how.factors->shape(0) != dimensions / 2 || how.factors->dtype() != DType::f32))
    fail<ShapeError>(
        {.operation = "rotary",
         .with = {{"factors", to_string(how.factors->shape()) + " " + std::string(dtype_name(how.factors->dtype()))},
                  {"pairs", std::to_string(dimensions / 2)}},
         .wrong = "factors must be one f32 per pair"});
  if (how.factors && how.factors->device() != device)
    fail<DeviceError>({.operation = "rotary",
                       .with = {{"x on", to_string(device)}, {"factors on", to_string(how.factors->device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move the factors with to(...)"});
  if (first_position.number() < 0 || first_position.number() > (std::int64_t{1} << 31) - tokens)
    fail<ArgumentError>({.operation = "rotary",
                         .with = {{"first position", std::to_string(first_position.number())}},
                         .wrong = "positions must be between 0 and 2^31"});
}

RotarySpec rotary_arguments(const Rotary& how, DType x, std::int64_t head_size, bool in_memory, Device device,
                            std::vector<LaunchArgument>& args) {
  const std::int64_t dimensions = how.dimensions == 0 ? head_size : how.dimensions;
  const RotarySpec spec{x,         how.pairs, dimensions != head_size, how.factors.has_value(),
                        in_memory, false,     how.magnitude != 1};
  const Frequencies f = frequencies(device, dimensions, how.base, how.scale);
  args.emplace_back(f.turns.view()), args.emplace_back(f.rest.view());
  if (how.factors) args.emplace_back(how.factors->as_contiguous().view());
  args.push_back(LaunchArgument::index(dimensions / 2));
  if (spec.magnitude) args.push_back(LaunchArgument::scalar(how.magnitude));
  return spec;
}

}  // namespace ops

Array rotary(const Array& x, const Position& first_position, const Rotary& how) {
  if (x.rank() == 4) {  // (batch, heads, tokens, size): batches are treated as additional heads
    const detail::Operation whole("rotary", x);
    const std::int64_t batch = x.shape(0), heads = x.shape(1), tokens = x.shape(2), size = x.shape(3);
    const Array rows = x.permute({2, 0, 1, 3}).reshape({tokens, batch * heads, size});
    return whole.finish(rotary(rows, first_position, how).reshape({tokens, batch, heads, size}).permute({1, 2, 0, 3}));
  }
  detail::RuledOperation operation("rotary", x);
  const auto rule = [&] {  // the inverse rotation
    Rotary back = how;
    back.scale = -how.scale;
    return Rule{[=](Backward& b) { b.add(0, [&] { return rotary(b.adjoint(), first_position, back); }); }};
  };
  if (how.factors) detail::check_no_rule("rotary", *how.factors);
  check_rows_match("rotary", "x", x);
  const std::int64_t tokens = x.shape(0), heads = x.shape(1), head_size = x.shape(2);
  ops::check_rotary(how, head_size, first_position, tokens, x.device());
  if (first_position.is_each() && first_position.memory().size() != tokens)
    fail<ShapeError>({.operation = "rotary",
                      .with = {{"x", to_string(x.shape())}, {"positions", to_string(first_position.memory().shape())}},
                      .wrong = "there must be one position for each token"});
  const std::int64_t dimensions = how.dimensions == 0 ? head_size : how.dimensions;
  Array out = Array::empty(x.shape(), x.dtype(), x.device());
  if (x.size() == 0 || dimensions == 0) return operation.finish(x.size() == 0 ? out : x, rule);
  const Array rows = rows_of(x);
  std::vector<LaunchArgument> args = {rows.view(), out.view()};
  RotarySpec spec = ops::rotary_arguments(how, x.dtype(), head_size, first_position.in_memory(), x.device(), args);
  spec.each = first_position.is_each();
  args.push_back(LaunchArgument::index(head_size));
  args.push_back(ops::argument(first_position));
  for (std::int64_t v : {rows.strides()[0], rows.strides()[1]}) args.push_back(LaunchArgument::index(v));
  static auto& family = *new KernelFamily<RotarySpec>(ops::trace_rotary);
  const std::int64_t threads = head_size - dimensions / 2;
  family(spec).launch(
      {static_cast<std::uint64_t>(threads), static_cast<std::uint64_t>(heads), static_cast<std::uint64_t>(tokens)},
      std::span(args));
  const auto attributes = [&] {
    return Attributes{{"position", first_position.number()},
                      {"halves", how.pairs == RotaryPairs::halves},
                      {"dimensions", dimensions},
                      {"base", static_cast<double>(how.base)},
                      {"scale", static_cast<double>(how.scale)},
                      {"magnitude", static_cast<double>(how.magnitude)}};
  };
  return operation.finish(std::move(out), attributes, rule);
}

std::int64_t cache_row(std::int64_t head_size, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::i8)
    fail<DtypeError>({.operation = "cache_row",
                      .with = {{"dtype", std::string(dtype_name(dtype))}},
                      .wrong = "a KV cache must be f32, f16, or i8 for q8_0"});
  if (dtype != DType::i8) return head_size;
  if (head_size % ops::cache_block != 0)
    fail<ShapeError>({.operation = "cache_row",
                      .with = {{"head size", std::to_string(head_size)}},
                      .wrong = "a KV cache in q8_0 consists of blocks of 32 elements of a head",
                      .remedy = "Use f16"});
  return head_size / ops::cache_block * (ops::cache_block + 2);
}

void cache_store(Array& cache, const Array& rows, const Position& position) {
  const detail::Operation operation("cache_store", cache, rows);
  detail::check_write_target("cache_store", cache), detail::check_stored_value("cache_store", rows);
  ops::require_consecutive("cache_store", position);
  check_rows_match("cache_store", "rows", rows);
  const std::int64_t row = cache_row(rows.shape(2), cache.dtype());
  if (cache.rank() != 3 || cache.shape(0) != rows.shape(1) || cache.shape(2) != row || position.number() < 0 ||
      position.number() > cache.shape(1) - rows.shape(0))
    fail<ShapeError>(
        {.operation = "cache_store",
         .with = {{"cache", to_string(cache.shape())},
                  {"rows", to_string(rows.shape())},
                  {"position", std::to_string(position.number())}},
         .wrong =
             "the rows (tokens, heads, head size) do not fit into the cache (heads, capacity, row of the head size)"});
  if (cache.device() != rows.device())
    fail<DeviceError>({.operation = "cache_store",
                       .with = {{"cache on", to_string(cache.device())}, {"rows on", to_string(rows.device())}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move the rows with to(...)"});
  if (rows.size() == 0) return;
  if (cache.strides()[2] != 1 && cache.shape(2) != 1)
    fail<ShapeError>({.operation = "cache_store", .wrong = "the elements of a head in the cache are not contiguous"});
  const Array from = rows_of(rows);
  static auto& family = *new KernelFamily<StoreSpec>(ops::trace_cache_store);
  std::vector<LaunchArgument> args = {from.view(), cache.view_for_writing()};
  args.push_back(ops::argument(position));
  for (const std::int64_t n : {from.strides()[0], from.strides()[1], cache.strides()[0], cache.strides()[1]})
    args.push_back(LaunchArgument::index(n));
  const std::int64_t columns = cache.dtype() == DType::i8 ? rows.shape(2) / ops::cache_block : rows.shape(2);
  family({from.dtype(), cache.dtype(), position.in_memory()})
      .launch({static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows.shape(1)),
               static_cast<std::uint64_t>(rows.shape(0))},
              std::span(args));
  operation.finish_in_place(cache, [&] { return Attributes{{"position", position.number()}}; });
}

}  // namespace tessera
