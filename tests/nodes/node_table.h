// SPDX-License-Identifier: Apache-2.0
// The table node kind x dtype x device: rows that know how to trace one small kernel for any dtype and what it must
// give, and the machine that runs all of them, many cells to a kernel, on every target.
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

/// A column: a dtype, and `index` twice, since it has two widths.
struct Column {
  DType dtype = DType::f32;
  bool index64 = false;
  std::string name() const { return index64 ? "index64" : std::string(dtype_name(dtype)); }
  /// The dtype in which it computes: 16-bit floats compute as f32.
  DType compute() const { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }
  /// The dtype in which its values lie in memory.
  DType memory() const { return dtype == DType::index ? DType::i64 : dtype; }
};
std::vector<Column> all_columns();

/// Whose functions exp, log, sin, ... are on a target.
enum class Functions : std::uint8_t {
  ours,    ///< expanded by lowering: emit/math.h, math64.cpp
  host,    ///< the C library's, or LLVM's for a CPU
  opencl,  ///< an OpenCL compiler's, of the full profile
  cuda,    ///< NVRTC's
  hip      ///< AMD's device library
};

/// What one launch works on. Values are bits as ir constants keep them, in the column's dtype.
struct World {
  static constexpr std::size_t block_threads = 48, block_x = 12, blocks = 3;
  Column column;
  bool block = false;                     ///< three blocks of 12 x 4 threads; else one row of `n` threads
  std::size_t n = 0;                      ///< threads
  std::uint32_t width = 1;                ///< threads of a subgroup
  Functions functions = Functions::ours;  ///< of the dtype in which the column computes
  std::vector<std::uint64_t> a, b, c;     ///< special values in every pairing, then random ones
  std::vector<std::uint64_t> s;           ///< small whole numbers, of which sums are exact
  std::string printed;                    ///< what the launch wrote on standard output and standard error

  template <class T>
  T value(const std::vector<std::uint64_t>& column_values, std::size_t i) const {
    return ir::from_bits<T>(column.dtype, column_values[i]);
  }
  /// Of a block kernel: the threads of thread i's subgroup.
  std::size_t subgroup_begin(std::size_t i) const { return i - i % block_threads % width; }
  std::size_t subgroup_end(std::size_t i) const {
    return std::min(subgroup_begin(i) + width, i - i % block_threads + block_threads);
  }
};
World make_world(Column column, bool block);
/// An element in memory as bits.
std::uint64_t load_bits(DType t, const std::byte* at);

/// The bits that element i must have; none: anything may stand there.
using Expected = std::function<std::optional<std::uint64_t>(const World&, std::size_t i)>;
/// The exact value of element i of a math function; none: anything.
using Exact = std::function<std::optional<long double>(const World&, std::size_t i)>;
/// How far from the exact value an element may be, in units in the last place.
using Allowed = std::function<double(const World&)>;
/// The cell's outputs and memories in the order in which it made them; gives what is wrong with them, else nothing.
using Check = std::function<std::string(const World&, const std::vector<std::vector<std::uint64_t>>&)>;

/// What a cell asks for beside the common inputs: memory that is filled before, a scalar, or an output of which every
/// element is compared.
struct Slot {
  std::size_t cell = 0;
  DType dtype = DType::f32;
  bool is_buffer = true;
  std::vector<std::uint64_t> initial;  ///< empty: an output, poisoned; of a scalar its bits
  std::size_t elements = 0;
  Expected expected;  ///< may be empty
  Exact exact;
  Allowed ulp;               ///< around `exact`
  bool either_zero = false;  ///< 0 and -0 count as equal
  bool payload = false;      ///< a NaN has to be the same one
};

/// Traces one cell: gives it inputs of the column's dtype, takes its results.
class Tracer {
 public:
  Tracer(const World& world, std::vector<Slot>& slots, std::vector<std::pair<std::size_t, Check>>& checks)
      : world_(world), slots_(slots), checks_(checks) {}
  void start(std::size_t cell) { cell_ = cell; }

  const World& world() const { return world_; }
  Column column() const { return world_.column; }
  DType dtype() const { return world_.column.dtype; }
  /// The thread's number: what results are indexed by.
  ir::Value i();
  // Inputs at element `at` (none: the thread's own), in the column's dtype.
  ir::Value a(ir::Value at = {}) { return input(0, at); }
  ir::Value b(ir::Value at = {}) { return input(1, at); }
  ir::Value c(ir::Value at = {}) { return input(2, at); }
  ir::Value s(ir::Value at = {}) { return input(3, at); }
  /// The buffer of `a` itself. An index has none: KernelError.
  ir::BufferRef a_memory();

  /// One value a thread.
  void result(ir::Value v, Expected expected, bool either_zero = false);
  /// Several values a thread, all of one dtype, in one output.
  void results(const std::vector<std::pair<ir::Value, Expected>>& values, bool either_zero = false);
  void real_result(ir::Value v, Exact exact, Allowed ulp);
  /// The output made last has to hold the expected bits, those of a NaN too.
  void keep_payload() { slots_.back().payload = true; }
  /// An output buffer that the cell stores into itself.
  ir::BufferRef output(DType dtype, std::size_t elements, Expected expected);
  /// A buffer that holds something at the start.
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

/// A row of the table: one node kind, with its sub kind.
struct Row {
  ir::Op op = ir::Op::none;
  std::uint8_t sub = 0;
  std::string name;  ///< beside the op: the sub kind, the width
  std::string word;  ///< what an error must call it
  bool block = false;
  std::function<void(Tracer&)> cell;
  bool last = false;  ///< ends threads: stands after all other cells of its kernel
  std::string full_name() const { return std::string(ir::op_name(op)) + (name.empty() ? "" : "." + name); }
};
/// Every row, made from the enums by the functions below, in node_rows_*.cpp.
std::vector<Row> all_rows();
void add_leaf_rows(std::vector<Row>& rows);
void add_pure_rows(std::vector<Row>& rows);
void add_convergent_rows(std::vector<Row>& rows);
void add_memory_rows(std::vector<Row>& rows);
void add_control_rows(std::vector<Row>& rows);

/// How a cell went on one target.
struct Outcome {
  enum Kind : std::uint8_t { right, refused, wrong } kind = right;
  std::string text;
};

/// Where cells run.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  virtual const Capabilities& can() const = 0;
  virtual Functions functions(DType f32_or_f64) const = 0;
  /// Buffers and scalars in the order of the parameters; buffers are written back. KernelError if it cannot.
  struct Memory {
    DType dtype = DType::f32;
    bool is_buffer = true;
    std::vector<std::byte> bytes;  ///< with `guard` bytes on either side
    std::uint64_t elements = 0, bits = 0;
  };
  static constexpr std::size_t guard = 64;
  /// Given as a scalar, this makes a launch need indices of 64 bits.
  static constexpr std::uint64_t wide_index = std::uint64_t{1} << 40;
  static bool index64(std::span<const Memory> memory);
  virtual void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) = 0;
};
/// Every device that answers; the interpreter with its checks; and it again on lowered functions.
std::vector<std::unique_ptr<Target>> all_targets();

/// What one cell came to.
struct Cell {
  std::string refusal;                                       ///< of the language
  bool wrong = false;                                        ///< on some target
  std::vector<std::pair<std::size_t, std::string>> lacking;  ///< targets that refused it, and their errors
};
struct Table {
  std::vector<Row> rows = all_rows();
  std::vector<Column> columns = all_columns();
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<std::vector<Cell>> cells{rows.size(), std::vector<Cell>(columns.size())};
};
/// Runs every cell on every target. Fails the test for a cell that is neither right nor refused by name: by the
/// language with row and dtype, by a target with what it lacks.
Table walk(std::vector<std::unique_ptr<Target>> targets);

}  // namespace tessera::test
