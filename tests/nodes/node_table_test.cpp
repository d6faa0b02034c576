// SPDX-License-Identifier: Apache-2.0
// Tests every kind of node with every dtype on every device. Each cell must either be correct or be rejected. Errors of
// the language must name the node kind and the dtype. Errors of a device must name the missing feature.
#include "tests/nodes/node_table.h"
#include "tests/opencl/fresh_pocl_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace tessera::test {
namespace {

using namespace ir;

/// Returns the first sentence of an error, without the location.
std::string sentence(std::string text) {
  if (text.starts_with("[")) text.erase(0, text.find("] ") + 2);
  return text.substr(0, std::min(text.find(". "), text.find('\n')));
}
/// Replaces the names of the row and of dtypes by placeholders, so that similar errors are counted together.
std::string refusal_kind(const std::string& error, const std::string& word) {
  std::string text = sentence(error);
  const auto replace = [&](const std::string& what, const char* by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += 2)
      if (at == 0 || !std::isalpha(static_cast<unsigned char>(text[at - 1]))) text.replace(at, what.size(), by);
  };
  for (const Column& column : all_columns()) replace(std::string(dtype_name(column.dtype)), "DTYPE");
  replace(word, "OP");
  return text;
}

void print(const Table& table) {
  std::map<std::string, char> letters;  // one letter per reason for which devices reject cells
  std::map<std::string, int> refusals;
  std::size_t in_language = 0, out = 0, lacking = 0;
  // Rows of the same op with the same marks are printed on one line.
  std::vector<std::pair<std::string, std::string>> lines;  // pairs of marks and names
  std::string before;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const Row& row = table.rows[r];
    std::string marks;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = table.cells[r][c];
      std::string mark = !cell.refusal.empty() ? "-" : cell.wrong ? "BAD" : "ok";
      if (cell.refusal.empty()) {
        ++in_language;
        lacking += cell.lacking.size();
        for (const auto& [target, text] : cell.lacking) {
          const std::string why = table.targets[target]->name() + ": " + sentence(text);
          const auto [known, fresh] = letters.try_emplace(why, static_cast<char>('a' + letters.size()));
          mark += std::string(" ") + known->second;
        }
      } else {
        ++out;
        ++refusals[refusal_kind(cell.refusal, row.word)];
      }
      char field[32];
      std::snprintf(field, sizeof field, " %-4s", mark.c_str());
      marks += field;
    }
    const std::string op(op_name(row.op));
    if (!lines.empty() && lines.back().first == marks && before == op && !row.name.empty())
      lines.back().second += " " + row.name;
    else
      lines.emplace_back(marks, row.name.empty() ? op : op + ": " + row.name);
    before = op;
  }
  std::string head;
  for (const Column& c : table.columns) {
    char field[32];
    std::snprintf(field, sizeof field, " %-4s",
                  c.name() == "index64" ? "ix64"
                  : c.name() == "index" ? "ix32"
                                        : c.name().c_str());
    head += field;
  }
  std::printf("%s\n", head.c_str());
  for (const auto& [marks, names] : lines) std::printf("%s  %s\n", marks.c_str(), names.c_str());
  std::printf("\nok: correct on every target:");
  for (const auto& t : table.targets) std::printf(" %s", t->name().c_str());
  std::printf("\n");
  for (const auto& [why, letter] : letters) std::printf("%c: rejected by %s\n", letter, why.c_str());
  std::printf("-: rejected by the kernel language:\n");
  for (const auto& [why, count] : refusals) std::printf("%6d cells: %s\n", count, why.c_str());
  std::printf(
      "%zu rows x %zu columns: %zu cells in the language, on %zu targets each (%zu of these rejected by a target), "
      "%zu rejected by the language\n",
      table.rows.size(), table.columns.size(), in_language, table.targets.size(), lacking, out);
}

TEST(NodeTable, EveryCellIsCorrectOrRejectedWithAReason) { print(walk(all_targets())); }

/// Returns the number of kinds of an op, or 1 if the op does not use `sub`. New enumerators are counted automatically.
/// The test below detects new ops.
std::size_t kinds(Op op) {
  const auto count = [](auto last) { return static_cast<std::size_t>(last); };
  switch (op) {
    case Op::index: return count(IndexKind::count_);
    case Op::local: return count(FragmentRole::count_);
    case Op::mma: return count(MmaOp::count_);
    case Op::place: return count(PlaceOf::count_);
    case Op::async: return count(AsyncOp::count_);
    case Op::unary: return count(UnaryOp::count_);
    case Op::binary: return count(BinaryOp::count_);
    case Op::compare: return count(CompareOp::count_);
    case Op::math: return count(MathOp::count_);
    case Op::vector: return count(VectorOp::count_);
    case Op::dot4: return count(Dot4Signs::count_);
    case Op::subgroup: return count(SubgroupOp::count_);
    case Op::block_reduce:
    case Op::block_scan: return count(ReduceOp::count_);
    case Op::atomic: return count(AtomicOp::count_);
    default: return 1;
  }
}

TEST(NodeTable, EveryNodeKindAndDtypeIsCovered) {
  std::set<std::pair<int, std::size_t>> there;
  std::set<std::string> names;
  for (const Row& row : all_rows()) {
    there.emplace(static_cast<int>(row.op), row.sub);
    EXPECT_TRUE(names.insert(row.full_name()).second) << row.full_name() << " is in the table twice";
  }
  for (int op = static_cast<int>(Op::none) + 1; op < static_cast<int>(Op::count_); ++op)
    for (std::size_t sub = 0; sub < kinds(static_cast<Op>(op)); ++sub)
      EXPECT_TRUE(there.contains({op, sub})) << op_name(static_cast<Op>(op)) << ", kind " << sub << " has no row";
  std::set<DType> dtypes;
  for (const Column& c : all_columns()) dtypes.insert(c.dtype);
  for (DType t : storable_dtypes) EXPECT_TRUE(dtypes.contains(t)) << dtype_name(t);
  EXPECT_EQ(dtypes.size(), std::size(storable_dtypes) + 1) << "index, which memory cannot store";
}

}  // namespace
}  // namespace tessera::test
