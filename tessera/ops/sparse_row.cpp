// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/sparse_row.h"

#include <algorithm>
#include <functional>

#include "tessera/array/history.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/ops/sparse_row_kernel.h"

namespace tessera::ops {

// First, the threads of the block record the nonzero inputs in a bit mask. Then each thread accumulates `vectors`
// outputs over these inputs. Additions are in the same order as in `trace_product` for a row of dot products: each sum
// covers every `lanes`-th input, and sums are then combined pairwise, which halves their number each time
// (`Emitter::across`).
ir::Function trace_sparse_row(const SparseRowSpec& s) {
  ir::Builder builder("sparse_row_" + std::to_string(s.columns()), ir::KernelKind::block, {s.lanes, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read),
             w = ir::buffer_param("w", DType::f32, ir::Access::read);
  const auto bias = s.bias ? ir::buffer_param("bias", DType::f32, ir::Access::read) : ir::BufferRef();
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value inputs = ir::scalar_param("inputs", DType::index),
                  outputs = ir::scalar_param("outputs", DType::index);
  const int lanes = static_cast<int>(s.lanes), columns = static_cast<int>(s.columns());
  const ir::BufferRef bits = ir::shared(DType::u32, s.lanes * s.words);
  const ir::Value lane = ir::thread_id(0), zero = ir::literal(DType::f32, 0), one = ir::literal(DType::u32, 1);
  // Inputs are grouped by the sum to which they are added. The inputs of a sum are contiguous.
  const ir::Value steps = (inputs + (lanes - 1)) / lanes, words = (inputs + (32 * lanes - 1)) / (32 * lanes);

  ir::for_(0, words, [&](ir::Value word) {
    const ir::Variable found(DType::u32, 0);
    ir::for_(0, ir::min(steps - word * 32, 32), [&](ir::Value i) {
      const ir::Value at = (word * 32 + i) * lanes + lane, kept = x.load_if(at < inputs, at, zero) != zero;
      found.set(found.get() | ir::select(kept, one << ir::cast(DType::u32, i), ir::literal(DType::u32, 0)));
    });
    bits.store(word * lanes + lane, found.get());
  });
  ir::barrier();

  const auto sum_of = [&](int number) {
    std::vector<ir::Variable> sums;
    for (std::uint32_t v = 0; v < s.vectors; ++v) sums.emplace_back(DType::f32, 0);
    const ir::Value first = (ir::block_id(0) * lanes + number) * steps;
    ir::for_(0, words, [&](ir::Value word) {
      const ir::Variable left(DType::u32, bits.load(word * lanes + number));
      // There are at most 32 iterations. The known bound lets the runtime estimate the amount of work.
      ir::for_(0, ir::min(ir::cast(DType::index, ir::unary(ir::UnaryOp::popcount, left.get())), 32), [&](ir::Value) {
        const ir::Value now = left.get(), step = word * 32 + ir::cast(DType::index, ir::ctz(now));
        left.set(now & (now - one));
        const ir::Value value = x.load(step * lanes + number), begin = (first + step) * columns + lane;
        for (std::uint32_t v = 0; v < s.vectors; ++v)
          sums[v].set(ir::fma(value, w.load(begin + static_cast<int>(v) * lanes), sums[v].get()));
      });
    });
    std::vector<ir::Value> values;
    for (const ir::Variable& v : sums) values.push_back(v.get());
    return values;
  };
  // Returns the sums that thread `number` would have in a pairwise reduction when `of` threads are still active.
  const std::function<std::vector<ir::Value>(int, int)> halves = [&](int number, int of) {
    if (of == lanes) return sum_of(number);
    std::vector<ir::Value> a = halves(number, 2 * of);
    const std::vector<ir::Value> b = halves(number + of, 2 * of);
    for (std::size_t v = 0; v < a.size(); ++v) a[v] = a[v] + b[v];
    return a;
  };
  const std::vector<ir::Value> sums = halves(0, 1);
  const ir::Value first = ir::block_id(0) * columns;
  for (std::uint32_t v = 0; v < s.vectors; ++v) {
    const ir::Value column = first + static_cast<int>(v) * lanes + lane;
    ir::if_(column < outputs, [&] {
      ir::Value sum = sums[v];
      if (s.bias) sum = sum + bias.load(column);
      out.store(column, activate(s.activation, sum));
    });
  }
  return builder.finish();
}

SparseRowSpec choose_sparse_row(const Tiles& tiles, std::int64_t outputs, std::int64_t inputs) {
  SparseRowSpec s;
  s.lanes = tiles.vectors ? vector_lanes(tiles, DType::f32) : std::min(tiles.block_limit, 16u);
  // The sums fill half of the registers, but there should be at least one block per core.
  const std::int64_t most = s.lanes >= 16 ? 16 : 8, units = std::max<std::int64_t>(tiles.compute_units, 1);
  s.vectors = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(ceil_div(outputs, units * s.lanes), 1, tiles.vectors ? most : 4));
  s.words = static_cast<std::uint32_t>(std::max<std::int64_t>(ceil_div(inputs, 32 * s.lanes), 1));
  return s;
}

bool is_sparse_row_bit_exact(Device device, std::int64_t outputs, std::int64_t inputs) {
  if (!blocks_are_vectors(kernel_backend(device)))
    return false;  // other devices add the threads' sums in a different order
  const Tiles tiles = tiles_of(device);
  ProductSpec row;  // the product that Dense requests
  row.a_unit_k = row.b_unit_k = true;
  row = choose_product(tiles, row, 1, outputs, inputs);
  return tiles.vectors && row.tx == 0 && row.ty == choose_sparse_row(tiles, outputs, inputs).lanes;
}

SparseRowWeight::SparseRowWeight(const Array& weight) : outputs_(0), inputs_(0) {
  const auto text = [&](const char* wrong) {
    return error_text({.operation = "SparseRowWeight",
                       .with = {{"weight", to_string(weight.shape())},
                                {"dtype", std::string(dtype_name(weight.dtype()))},
                                {"on", to_string(weight.device())}},
                       .wrong = wrong});
  };
  if (weight.rank() != 2) throw ShapeError(text("the weight must be a matrix"));
  if (weight.dtype() != DType::f32) throw DtypeError(text("the weight must be f32"));
  if (!is_built_in(weight.device().backend)) throw DeviceError(text("this kernel only runs on the CPU"));
  outputs_ = weight.shape(0), inputs_ = weight.shape(1);
  const SparseRowSpec s = choose_sparse_row(tiles_of(weight.device()), outputs_, inputs_);
  if (std::uint64_t{s.words} * s.lanes * 4 > device_info(weight.device()).can.shared_bytes)
    throw ShapeError(text("the weight has more inputs than fit in a block's shared memory"));
  const std::int64_t columns = s.columns(), blocks = ceil_div(outputs_, columns), lanes = s.lanes,
                     steps = ceil_div(inputs_, lanes);
  const Array whole = Array::zeros({blocks * columns, steps * lanes}, DType::f32, weight.device());
  whole.slice(0, 0, outputs_).slice(1, 0, inputs_).assign(weight);
  numbers_ = whole.reshape({blocks, columns, steps, lanes}).permute({0, 3, 2, 1}).copy();
}

std::uint64_t SparseRowWeight::bytes() const { return static_cast<std::uint64_t>(numbers_.size()) * 4; }

Array sparse_row_product(const Array& x, const SparseRowWeight& weight, const Epilogue& epilogue) {
  const auto refuse = [&](std::string wrong) {
    fail<ShapeError>(
        {.operation = "sparse_row_product",
         .with = {{"x", to_string(x.shape())}, {"weight", to_string(Shape{weight.outputs_, weight.inputs_})}},
         .wrong = std::move(wrong)});
  };
  detail::check_no_rule("sparse_row_product", x);
  if (x.size() != weight.inputs_) refuse("x does not have one element per input");
  if (epilogue.bias && epilogue.bias->shape() != Shape{weight.outputs_})
    refuse("the bias does not have one element per output");
  if (x.dtype() != DType::f32 || (epilogue.bias && epilogue.bias->dtype() != DType::f32) || epilogue.dtype)
    fail<DtypeError>({.operation = "sparse_row_product",
                      .with = {{"x", std::string(dtype_name(x.dtype()))}},
                      .wrong = "x and the bias must be f32, and no result dtype may be set"});
  if (x.device() != weight.device() || (epilogue.bias && epilogue.bias->device() != x.device()))
    fail<DeviceError>({.operation = "sparse_row_product",
                       .with = {{"x on", to_string(x.device())}, {"weight on", to_string(weight.device())}},
                       .wrong = "the operands are on different devices"});
  SparseRowSpec s = choose_sparse_row(tiles_of(x.device()), weight.outputs_, weight.inputs_);
  s.bias = epilogue.bias.has_value(), s.activation = epilogue.activation;
  const Array out = Array::empty({weight.outputs_}, DType::f32, x.device());
  if (out.size() == 0) return out;
  static auto& family = *new KernelFamily<SparseRowSpec>(trace_sparse_row);
  LaunchArguments args;
  args.add(x.as_contiguous().view()), args.add(weight.numbers_.view());
  if (epilogue.bias) args.add(epilogue.bias->as_contiguous().view());
  args.add(out.view());
  args.index(weight.inputs_), args.index(weight.outputs_);
  family(s).launch({static_cast<std::uint64_t>(weight.numbers_.shape(0)), 1, 1}, args);
  return out;
}

}  // namespace tessera::ops
