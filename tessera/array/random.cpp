// SPDX-License-Identifier: Apache-2.0
// Random arrays, computed with Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
// Element i is word i % 4 of the block for the seed and counter i / 4, so the result does not depend on the device or
// the tiling. A Counter is the upper half of Philox's counter. The elements of an array use only the lower half.
#include "tessera/array/generator.h"
#include "tessera/device/launch/kernel_family.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/array/philox_words.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

using ir::Value;

enum class Distribution : std::uint8_t { bits, uniform, normal };

struct RandomSpec {
  Distribution kind;
  bool in_memory = false;  ///< the counter is in device memory
  bool part = false;       ///< the output is part of a larger array
  bool wide = false;       ///< has_wide_products
  friend bool operator==(const RandomSpec&, const RandomSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(kind) * 8 + in_memory * 4 + part * 2 + wide; }
};

ir::Function trace_random(const RandomSpec& spec) {
  const Distribution kind = spec.kind;
  const char* names[] = {"random_bits", "random_uniform", "random_normal"};
  ir::Builder builder(std::string(names[static_cast<int>(kind)]) + (spec.part ? "_part" : ""), ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto out =
      ir::buffer_param("out", kind == Distribution::bits ? DType::u32 : DType::f32, ir::Access::read_write);
  const Value n = ir::scalar_param("n", DType::index);
  const Value key_low = ir::scalar_param("key_low", DType::u32), key_high = ir::scalar_param("key_high", DType::u32);
  const Value a = ir::scalar_param("a", DType::f32), b = ir::scalar_param("b", DType::f32);
  const Value block = ir::global_id();
  const Value first = ir::scalar_param("first", DType::u64);
  const Value stream = spec.in_memory
                           ? ir::buffer_param("stream", DType::u64, ir::Access::read).load(ir::index_literal(0))
                           : ir::scalar_param("stream", DType::u64);
  // For a part: `first` is the position of its first row in the whole array, and `pitch` is the distance between rows
  // there. `from` is the start of the row in the output, and n is the length of the row.
  Value from, begin, number = ir::cast(DType::u64, block) + first;
  if (spec.part) {
    const Value row = ir::global_id(1);
    from = ir::scalar_param("from", DType::index) + row * n;
    begin = first + ir::cast(DType::u64, row) * ir::scalar_param("pitch", DType::u64);
    number = (begin >> 2) + ir::cast(DType::u64, block);
  }
  const detail::PhiloxWords words = detail::philox_words(number, stream, key_low, key_high, spec.wide);
  Value result[4];
  for (int i = 0; i < 4; ++i) {
    if (kind == Distribution::bits)
      result[i] = words.w[i];
    else if (kind == Distribution::uniform)
      result[i] = ir::fma(detail::unit_float(words.w[i]), b - a, a);
  }
  if (kind == Distribution::normal)
    for (int i = 0; i < 4; i += 2) {  // Box-Muller; 1 - u is never 0
      const Value radius = ir::sqrt(-2.0f * ir::log(1.0f - detail::unit_float(words.w[i])));
      const Value angle = detail::unit_float(words.w[i + 1]) * static_cast<float>(2 * std::numbers::pi);
      result[i] = ir::fma(radius * ir::cos(angle), b, a);
      result[i + 1] = ir::fma(radius * ir::sin(angle), b, a);
    }
  for (int i = 0; i < 4; ++i) {
    if (spec.part) {
      const Value at = block * 4 + i - ir::cast(DType::index, begin & 3);
      ir::if_(at >= 0 && at < n, [&] { out.store(from + at, result[i]); });
      continue;
    }
    const Value at = block * 4 + i;
    ir::if_(at < n, [&] { out.store(at, result[i]); });
  }
  return builder.finish();
}

constexpr std::uint32_t key_low = 2, first_block = 6;  ///< Indices into the parameters of trace_random.

/// `first` is the number of the first block of four numbers.
Array random(Distribution kind, Shape shape, std::uint64_t seed, double a, double b, std::optional<Device> device,
             std::uint64_t first = 0, const Counter& counter = Counter(0)) {
  constexpr const char* names[] = {"random_bits", "random_uniform", "random_normal"};
  const char* const name = names[static_cast<std::size_t>(kind)];
  const detail::Operation operation(name);
  if (counter.in_memory() && !device) device = counter.memory().device();
  if (counter.in_memory() && device != counter.memory().device())
    fail<DeviceError>({.operation = name,
                       .with = {{"device", to_string(*device)}, {"counter on", to_string(counter.memory().device())}},
                       .wrong = "the counter and the result are on different devices",
                       .remedy = "Move the counter with .to(device)"});
  Array out = Array::empty(std::move(shape), kind == Distribution::bits ? DType::u32 : DType::f32, device);
  if (out.size() == 0) return operation.finish(std::move(out));
  static auto& family = *new KernelFamily<RandomSpec>(trace_random);
  family({kind, counter.in_memory(), false, detail::has_wide_products(out.device())})
      .launch({static_cast<std::uint64_t>((out.size() + 3) / 4), 1, 1},
              {out.view(), LaunchArgument::index(out.size()), LaunchArgument::scalar(DType::u32, seed & 0xffffffffu),
               LaunchArgument::scalar(DType::u32, seed >> 32), LaunchArgument::scalar(static_cast<float>(a)),
               LaunchArgument::scalar(static_cast<float>(b)), LaunchArgument::scalar(DType::u64, first),
               counter.in_memory() ? LaunchArgument(counter.memory().view())
                                   : LaunchArgument::scalar(DType::u64, counter.number())});
  return operation.finish(std::move(out));
}

Array draw(Distribution kind, Shape shape, double a, double b, std::optional<Device> device,
           const std::shared_ptr<RandomStream>& stream) {
  Array out = random(kind, std::move(shape), stream->seed, a, b, device, stream->offset);
  const auto blocks = (static_cast<std::uint64_t>(out.size()) + 3) / 4;
  Recorder* const recorder = Recorder::of_this_thread();
  if (recorder != nullptr && blocks != 0)
    recorder->drew(stream, {.seed_low = key_low, .seed_high = key_low + 1, .offset = first_block}, blocks);
  stream->offset += blocks;
  return out;
}

/// Returns the part that begins at `starts` of the array that `random` returns for the shape `whole`.
Array random_part(Distribution kind, const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double a,
                  double b, std::optional<Device> device) {
  constexpr const char* names[] = {"random_bits", "random_uniform", "random_normal"};
  const char* const name = names[static_cast<std::size_t>(kind)];
  const detail::Operation operation(name);
  check_shape(name, whole);
  const std::size_t rank = whole.size();
  bool inside = starts.size() == rank && shape.size() == rank;
  for (std::size_t d = 0; inside && d < rank; ++d)
    inside = starts[d] >= 0 && shape[d] >= 0 && starts[d] <= whole[d] - shape[d];
  if (!inside)
    fail<ShapeError>({.operation = name,
                      .with = {{"whole", to_string(whole)}, {"starts", to_string(starts)}, {"part", to_string(shape)}},
                      .wrong = "the part is not inside the whole array"});
  Array out = Array::empty(shape, kind == Distribution::bits ? DType::u32 : DType::f32, device);
  if (out.size() == 0) return operation.finish(std::move(out));
  static auto& family = *new KernelFamily<RandomSpec>(trace_random);
  const Strides pitches = contiguous_strides(whole);
  // One launch covers the rows of the second-last dimension. Each combination of indices in the outer dimensions has
  // its own launch.
  const std::int64_t columns = rank > 0 ? shape[rank - 1] : 1, rows = rank > 1 ? shape[rank - 2] : 1,
                     pitch = rank > 1 ? pitches[rank - 2] : 1;
  for (std::int64_t matrix = 0; matrix < out.size() / (rows * columns); ++matrix) {
    std::int64_t first = 0, rest = matrix;
    for (std::size_t d = rank; d-- > 0;) {
      first += starts[d] * pitches[d];
      if (d + 2 < rank) first += rest % shape[d] * pitches[d], rest /= shape[d];
    }
    family({kind, false, true, detail::has_wide_products(out.device())})
        .launch({static_cast<std::uint64_t>((columns + 6) / 4), static_cast<std::uint64_t>(rows), 1},
                {out.view(), LaunchArgument::index(columns), LaunchArgument::scalar(DType::u32, seed & 0xffffffffu),
                 LaunchArgument::scalar(DType::u32, seed >> 32), LaunchArgument::scalar(static_cast<float>(a)),
                 LaunchArgument::scalar(static_cast<float>(b)),
                 LaunchArgument::scalar(DType::u64, static_cast<std::uint64_t>(first)),
                 LaunchArgument::scalar(DType::u64, 0), LaunchArgument::index(matrix * rows * columns),
                 LaunchArgument::scalar(DType::u64, static_cast<std::uint64_t>(pitch))});
  }
  return operation.finish(std::move(out));
}

}  // namespace

Array random_uniform_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double low,
                          double high, std::optional<Device> device) {
  return random_part(Distribution::uniform, whole, starts, std::move(shape), seed, low, high, device);
}
Array random_normal_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed, double mean,
                         double deviation, std::optional<Device> device) {
  return random_part(Distribution::normal, whole, starts, std::move(shape), seed, mean, deviation, device);
}
Array random_bits_part(const Shape& whole, const Shape& starts, Shape shape, std::uint64_t seed,
                       std::optional<Device> device) {
  return random_part(Distribution::bits, whole, starts, std::move(shape), seed, 0, 0, device);
}

Array random_uniform(Shape shape, std::uint64_t seed, double low, double high, std::optional<Device> device) {
  return random(Distribution::uniform, std::move(shape), seed, low, high, device);
}
Array random_normal(Shape shape, std::uint64_t seed, double mean, double deviation, std::optional<Device> device) {
  return random(Distribution::normal, std::move(shape), seed, mean, deviation, device);
}
Array random_bits(Shape shape, std::uint64_t seed, std::optional<Device> device) {
  return random(Distribution::bits, std::move(shape), seed, 0, 0, device);
}

Array random_uniform(Shape shape, std::uint64_t seed, const Counter& counter, double low, double high,
                     std::optional<Device> device) {
  return random(Distribution::uniform, std::move(shape), seed, low, high, device, 0, counter);
}
Array random_normal(Shape shape, std::uint64_t seed, const Counter& counter, double mean, double deviation,
                    std::optional<Device> device) {
  return random(Distribution::normal, std::move(shape), seed, mean, deviation, device, 0, counter);
}
Array random_bits(Shape shape, std::uint64_t seed, const Counter& counter, std::optional<Device> device) {
  return random(Distribution::bits, std::move(shape), seed, 0, 0, device, 0, counter);
}

Counter::Counter(Array in_memory) {
  if (in_memory.dtype() != DType::u64)
    fail<DtypeError>({.operation = "Counter",
                      .with = {{"dtype", std::string(dtype_name(in_memory.dtype()))}},
                      .wrong = "the array that contains the counter must have dtype u64",
                      .remedy = "Create it with Array::from({std::uint64_t{0}})"});
  if (in_memory.size() != 1)
    fail<ShapeError>({.operation = "Counter",
                      .with = {{"shape", to_string(in_memory.shape())}},
                      .wrong = "the array that contains the counter must have exactly one element"});
  memory_ = std::move(in_memory);
}

Generator::Generator(std::uint64_t seed, std::uint64_t offset)
    : state_(std::make_shared<RandomStream>(RandomStream{seed, offset})) {}
Generator::Generator(const Generator& other) : state_(std::make_shared<RandomStream>(*other.state_)) {}
Generator& Generator::operator=(const Generator& other) {
  *state_ = *other.state_;
  return *this;
}

Array Generator::bits(Shape shape, std::optional<Device> device) {
  return draw(Distribution::bits, std::move(shape), 0, 0, device, state_);
}
Array Generator::uniform(Shape shape, double low, double high, std::optional<Device> device) {
  return draw(Distribution::uniform, std::move(shape), low, high, device, state_);
}
Array Generator::normal(Shape shape, double mean, double deviation, std::optional<Device> device) {
  return draw(Distribution::normal, std::move(shape), mean, deviation, device, state_);
}

}  // namespace tessera
