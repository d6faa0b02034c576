// SPDX-License-Identifier: Apache-2.0
// Every node kind on every dtype on every device, one table without an unnamed gap: a cell is right, or refused by the
// language with an error that names kind and dtype, or refused by a device with an error that names what it lacks.
#include "tests/support/node_table.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <set>

#include "tessera/testing/testing.h"

namespace tessera::test {
namespace {

using namespace ir;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// What one cell came to.
struct Cell {
  std::string refusal;                          ///< of the language
  std::vector<std::pair<std::size_t, std::string>> lacking;  ///< targets that refused it, and their errors
};

struct Table {
  std::vector<Row> rows = all_rows();
  std::vector<Column> columns = all_columns();
  std::vector<std::unique_ptr<Target>> targets = all_targets();
  std::vector<std::vector<Cell>> cells{rows.size(), std::vector<Cell>(columns.size())};
};

/// An error without where it happened and what to do, and with placeholders for row and dtype.
std::string reason_of(std::string text, const std::string& word) {
  if (text.starts_with("[")) text.erase(0, text.find("] ") + 2);
  text = text.substr(0, text.find(". "));
  const auto replace = [&](const std::string& what, const char* by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += 2)
      if (at == 0 || !std::isalpha(static_cast<unsigned char>(text[at - 1]))) text.replace(at, what.size(), by);
  };
  for (const Column& other : all_columns()) replace(std::string(dtype_name(other.dtype)), "DTYPE");
  replace(word, "OP");
  return text;
}

/// Whether a target may refuse this cell with this error: it lacks something, and the error says what.
bool named(const std::string& error, const Target& target) {
  const Capabilities& can = target.can();
  return (!can.f64 && has(error, "no f64")) || (!can.atomic_i64 && has(error, "no atomics of 64 bits")) ||
         (!can.int64 && has(error, "no 64-bit integers"));
}

void print(const Table& table) {
  std::map<std::string, char> letters;  // of devices' reasons
  std::map<std::string, int> refusals;
  std::size_t in_language = 0, out = 0, lacking = 0;
  // Rows of one op that look alike are one line.
  std::vector<std::pair<std::string, std::string>> lines;  // marks, names
  std::string before;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const Row& row = table.rows[r];
    std::string marks;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Cell& cell = table.cells[r][c];
      std::string mark = cell.refusal.empty() ? "ok" : "-";
      if (cell.refusal.empty()) {
        ++in_language;
        lacking += cell.lacking.size();
        for (const auto& [target, text] : cell.lacking) {
          const std::string why = table.targets[target]->name() + ": " + reason_of(text, row.word);
          const auto [known, fresh] = letters.try_emplace(why, static_cast<char>('a' + letters.size()));
          mark += std::string(" ") + known->second;
        }
      } else {
        ++out;
        ++refusals[reason_of(cell.refusal, row.word)];
      }
      char field[32];
      std::snprintf(field, sizeof field, " %-6s", mark.c_str());
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
    std::snprintf(field, sizeof field, " %-6s", c.name() == "index64" ? "ix64" : c.name() == "index" ? "ix32" : c.name().c_str());
    head += field;
  }
  std::printf("%s\n", head.c_str());
  for (const auto& [marks, names] : lines) std::printf("%s  %s\n", marks.c_str(), names.c_str());
  std::printf("\nok: right on every target, which are");
  for (const auto& t : table.targets) std::printf(" %s", t->name().c_str());
  std::printf("\n");
  for (const auto& [why, letter] : letters)
    std::printf("%c: refused by %s\n", letter, why.substr(0, why.find('\n')).c_str());
  std::printf("-: refused by the language:\n");
  for (const auto& [why, count] : refusals) std::printf("%6d cells: %s\n", count, why.c_str());
  std::printf("%zu rows x %zu columns: %zu cells in the language, on %zu targets each (%zu of these refused by a target), "
              "%zu refused by the language\n",
              table.rows.size(), table.columns.size(), in_language, table.targets.size(), lacking, out);
}

TEST(NodeTable, EveryCellIsRightOrRefusedByName) {
  Table table;
  const bool timed = std::getenv("TESSERA_TABLE_TIMES") != nullptr;
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    for (const bool block : {false, true}) {
      const Column column = table.columns[c];
      const World world = make_world(column, block);
      std::vector<const Row*> here;
      std::vector<std::size_t> numbers;
      for (const bool last : {false, true})
        for (std::size_t r = 0; r < table.rows.size(); ++r) {
          const Row& row = table.rows[r];
          if (row.block != block || row.last != last) continue;
          const Verdict verdict = ask_language(row, world);
          const std::string what = row.full_name() + " of " + column.name();
          table.cells[r][c].refusal = verdict.refusal;
          if (verdict.refusal.empty()) {
            here.push_back(&row), numbers.push_back(r);
            const bool folds = row.op == Op::cast || row.op == Op::bitcast || row.name == name_of(IndexKind::block_size);
            EXPECT_TRUE(verdict.has_node || folds) << what << ": its kernel has no such node, so nothing is tested";
          } else {
            EXPECT_TRUE(has(verdict.refusal, row.word)) << what << ": the error does not name it: " << verdict.refusal;
            EXPECT_TRUE(has(verdict.refusal, dtype_name(column.dtype)))
                << what << ": the error does not name the dtype: " << verdict.refusal;
          }
        }
      for (std::size_t k = 0; k < table.targets.size(); ++k) {
        Target& target = *table.targets[k];
        const auto start = std::chrono::steady_clock::now();
        const std::vector<Outcome> outcomes = run_cells(here, world, target);
        if (timed)
          std::printf("%s %s %s: %zu cells, %.2f s\n", target.name().c_str(), column.name().c_str(),
                      block ? "blocks" : "map", here.size(),
                      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
          const std::string what = here[i]->full_name() + " of " + column.name() + " on " + target.name();
          if (outcomes[i].kind == Outcome::wrong) ADD_FAILURE() << what << ": " << outcomes[i].text;
          if (outcomes[i].kind != Outcome::refused) continue;
          EXPECT_TRUE(named(outcomes[i].text, target)) << what << " has no named reason: " << outcomes[i].text;
          table.cells[numbers[i]][c].lacking.emplace_back(k, outcomes[i].text);
        }
      }
    }
  print(table);
}

/// How many kinds an op divides into; 1 where `sub` has no meaning. A new enumerator is counted by itself, a new op is
/// looked for below.
std::size_t kinds(Op op) {
  const auto count = [](auto last) { return static_cast<std::size_t>(last); };
  switch (op) {
    case Op::index: return count(IndexKind::count_);
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

TEST(NodeTable, EveryKindHasARowAndEveryDtypeAColumn) {
  std::set<std::pair<int, std::size_t>> there;
  std::set<std::string> names;
  for (const Row& row : all_rows()) {
    there.emplace(static_cast<int>(row.op), row.sub);
    EXPECT_TRUE(names.insert(row.full_name()).second) << row.full_name() << " stands in the table twice";
  }
  for (int op = static_cast<int>(Op::none) + 1; op < static_cast<int>(Op::count_); ++op)
    for (std::size_t sub = 0; sub < kinds(static_cast<Op>(op)); ++sub)
      EXPECT_TRUE(there.contains({op, sub})) << op_name(static_cast<Op>(op)) << ", kind " << sub << " has no row";
  std::set<DType> dtypes;
  for (const Column& c : all_columns()) dtypes.insert(c.dtype);
  for (DType t : storable_dtypes) EXPECT_TRUE(dtypes.contains(t)) << dtype_name(t);
  EXPECT_EQ(dtypes.size(), std::size(storable_dtypes) + 1) << "index, which nothing stores";
}

}  // namespace
}  // namespace tessera::test
