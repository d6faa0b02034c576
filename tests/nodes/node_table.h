// SPDX-License-Identifier: Apache-2.0
// The table of node kinds, dtypes and devices. A row traces one small kernel for any dtype and defines its expected
// result. To save time, many cells are combined into one kernel, which runs on every target.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/ir/semantics.h"
#include "tessera/ir/value.h"

namespace tessera::test {

/// A column of the table: a dtype. `index` has two columns, one for each width.
struct Column {
  DType dtype = DType::f32;
  bool index64 = false;
  std::string name() const { return index64 ? "index64" : std::string(dtype_name(dtype)); }
  /// Returns the dtype used for computations: f32 for 16-bit floats.
  DType compute() const { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }
  /// Returns the dtype used to store values in memory.
  DType memory() const { return dtype == DType::index ? DType::i64 : dtype; }
};
std::vector<Column> all_columns();

/// The implementation of exp, log, sin, ... on a target.
enum class Functions : std::uint8_t {
  ours,    ///< expanded by lowering: emit/math.h, math64.cpp
  host,    ///< the C library, or LLVM for a CPU
  opencl,  ///< an OpenCL compiler, full profile
  cuda,    ///< NVRTC
  ptx,     ///< like `ours`, but exp and exp2 of f32 use an instruction of NVIDIA GPUs
  hip      ///< AMD's device library
};

/// The inputs of one launch. Values are stored as bits in the dtype of the column, like IR constants.
struct World {
  static constexpr std::size_t block_threads = 48, block_x = 12, blocks = 3;
  Column column;
  bool block = false;                     ///< true: three blocks of 12 x 4 threads; false: one row of `n` threads
  std::size_t n = 0;                      ///< number of threads
  std::uint32_t width = 1;                ///< threads per subgroup
  Functions functions = Functions::ours;  ///< for the dtype in which the column is computed
  std::vector<std::uint64_t> a, b, c;     ///< all pairs of special values, then random values
  std::vector<std::uint64_t> s;           ///< small integers with exact sums
  std::string printed;                    ///< standard output and standard error of the launch

  template <class T>
  T value(const std::vector<std::uint64_t>& column_values, std::size_t i) const {
    return ir::from_bits<T>(column.dtype, column_values[i]);
  }
  /// For block kernels: the first thread of thread i's subgroup, and the end of the subgroup.
  std::size_t subgroup_begin(std::size_t i) const { return i - i % block_threads % width; }
  std::size_t subgroup_end(std::size_t i) const {
    return std::min(subgroup_begin(i) + width, i - i % block_threads + block_threads);
  }
};
World make_world(Column column, bool block);
/// Returns an element in memory as bits.
std::uint64_t load_bits(DType t, const std::byte* at);

/// The expected bits of element i, or nullopt if any value is allowed.
using Expected = std::function<std::optional<std::uint64_t>(const World&, std::size_t i)>;
/// The exact result of a math function for element i, or nullopt if any value is allowed.
using Exact = std::function<std::optional<long double>(const World&, std::size_t i)>;
/// The maximum error of an element, in units in the last place.
using Allowed = std::function<double(const World&)>;
/// Checks the outputs and memories of the cell, in the order of their creation. Returns an error message, or "".
using Check = std::function<std::string(const World&, const std::vector<std::vector<std::uint64_t>>&)>;

/// A parameter of a cell in addition to the common inputs: a scalar, initialised memory, or an output. Every element of
/// an output is compared.
struct Slot {
  std::size_t cell = 0;
  DType dtype = DType::f32;
  bool is_buffer = true;
  std::vector<std::uint64_t> initial;  ///< empty for an output, which is filled with poison; for a scalar its bits
  std::size_t elements = 0;
  Expected expected;  ///< may be empty
  Exact exact;
  Allowed ulp;               ///< allowed error relative to `exact`
  bool either_zero = false;  ///< 0 and -0 are treated as equal
  bool payload = false;      ///< NaNs must have the same payload
};

/// Traces one cell. Provides inputs of the column's dtype and records the results.
class Tracer {
 public:
  Tracer(const World& world, std::vector<Slot>& slots, std::vector<std::pair<std::size_t, Check>>& checks)
      : world_(world), slots_(slots), checks_(checks) {}
  void start(std::size_t cell) { cell_ = cell; }

  const World& world() const { return world_; }
  Column column() const { return world_.column; }
  DType dtype() const { return world_.column.dtype; }
  /// Returns the index of the thread. It is also the index of its results.
  ir::Value i();
  // Inputs in the dtype of the column. `at` is the element, by default the thread's own.
  ir::Value a(ir::Value at = {}) { return input(0, at); }
  ir::Value b(ir::Value at = {}) { return input(1, at); }
  ir::Value c(ir::Value at = {}) { return input(2, at); }
  ir::Value s(ir::Value at = {}) { return input(3, at); }
  /// Returns the buffer of `a`. Throws KernelError for index, because buffers cannot store it.
  ir::BufferRef a_memory();

  /// Records one value per thread.
  void result(ir::Value v, Expected expected, bool either_zero = false);
  /// Records several values per thread, all of the same dtype, in one output.
  void results(const std::vector<std::pair<ir::Value, Expected>>& values, bool either_zero = false);
  void real_result(ir::Value v, Exact exact, Allowed ulp);
  /// Requires the last output to have the expected bits even for NaNs.
  void keep_payload() { slots_.back().payload = true; }
  /// Returns an output buffer that the cell writes itself.
  ir::BufferRef output(DType dtype, std::size_t elements, Expected expected);
  /// Returns an initialised buffer.
  ir::BufferRef memory(DType dtype, std::vector<std::uint64_t> initial, Expected expected = {});
  ir::Value scalar(DType dtype, std::uint64_t bits);
  void check(Check check) { checks_.emplace_back(cell_, std::move(check)); }

 private:
  ir::Value input(int which, ir::Value at);
  ir::BufferRef input_memory(int which);
  std::string next_name();

  const World& world_;
  std::vector<Slot>& slots_;
  std::vector<std::pair<std::size_t, Check>>& checks_;
  std::size_t cell_ = 0;
  std::array<ir::BufferRef, 4> inputs_;
};

/// A row of the table: one kind of node.
struct Row {
  ir::Op op = ir::Op::none;
  std::uint8_t sub = 0;
  std::string name;  ///< appended to the op's name: the operation or the width
  std::string word;  ///< the name that error messages must contain
  bool block = false;
  std::function<void(Tracer&)> cell;
  bool last = false;  ///< ends threads, so it must follow all other cells of its kernel
  std::string full_name() const { return std::string(ir::op_name(op)) + (name.empty() ? "" : "." + name); }
};
/// Returns all rows. The functions below create them from the enums, in node_rows_*.cpp.
std::vector<Row> all_rows();
void add_leaf_rows(std::vector<Row>& rows);
void add_pure_rows(std::vector<Row>& rows);
void add_convergent_rows(std::vector<Row>& rows);
void add_memory_rows(std::vector<Row>& rows);
void add_control_rows(std::vector<Row>& rows);

/// The result of a cell on one target.
struct Outcome {
  enum Kind : std::uint8_t { right, refused, wrong } kind = right;
  std::string text;
};

/// An environment in which cells run.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  virtual const Capabilities& can() const = 0;
  virtual Functions functions(DType f32_or_f64) const = 0;
  /// Runs the kernel. Buffers and scalars are passed in the order of the parameters. Buffers are written back. Throws
  /// KernelError if the target rejects the kernel.
  struct Memory {
    DType dtype = DType::f32;
    bool is_buffer = true;
    std::vector<std::byte> bytes;  ///< with `guard` bytes on both sides
    std::uint64_t elements = 0, bits = 0;
  };
  static constexpr std::size_t guard = 64;
  /// A scalar argument with this value makes the launch use 64-bit indices.
  static constexpr std::uint64_t wide_index = std::uint64_t{1} << 40;
  static bool index64(std::span<const Memory> memory);
  virtual void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) = 0;
};
/// Returns every available device, the interpreter with checks, and the interpreter for lowered functions.
std::vector<std::unique_ptr<Target>> all_targets();

/// The results of one cell.
struct Cell {
  std::string refusal;  ///< the error of the kernel language, if it rejects the cell
  bool wrong = false;   ///< true if a target computed a wrong result
  std::vector<std::pair<std::size_t, std::string>> lacking;  ///< targets that rejected the cell, with their errors
};
struct Table {
  std::vector<Row> rows = all_rows();
  std::vector<Column> columns = all_columns();
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<std::vector<Cell>> cells{rows.size(), std::vector<Cell>(columns.size())};
};
/// Runs every cell on every target. A cell passes if its result is correct, if the language rejects it with an error
/// that names the row and the dtype, or if a target rejects it with an error that names the missing feature.
Table walk(std::vector<std::unique_ptr<Target>> targets);

}  // namespace tessera::test
