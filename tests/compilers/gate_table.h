// SPDX-License-Identifier: Apache-2.0
// The table of compile_gate_test, with a row for each kernel and a column for each compiler. It contains registers and
// spills if the compiler reports them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::test {

/// The result of one compiler for one kernel. Numbers are -1 if unknown.
struct Made {
  int registers = -1, spilled = -1;  ///< bytes per thread
};

class GateTable {
 public:
  static GateTable& get() {
    static GateTable table;
    return table;
  }

  /// Adds a column. `lines` have the form "kernel\tregisters\tspilled", which line_of() writes.
  void add(const std::string& column, const std::string& lines) {
    columns_.push_back(column);
    std::istringstream in(lines);
    std::string line;
    while (std::getline(in, line)) {
      const auto first = line.find('\t'), second = line.find('\t', first + 1);
      if (second == line.npos) continue;
      const std::string name = line.substr(0, first);
      if (!cells_.contains(name)) order_.push_back(name);
      cells_[name][column] = {std::stoi(line.substr(first + 1)), std::stoi(line.substr(second + 1))};
    }
  }
  void missing(const std::string& what) { missing_.push_back(what); }
  static std::string line_of(const std::string& kernel, const Made& made) {
    return kernel + "\t" + std::to_string(made.registers) + "\t" + std::to_string(made.spilled) + "\n";
  }

  void print() const {
    if (!columns_.empty()) {
      std::size_t wide = 6;
      for (const std::string& name : order_) wide = std::max(wide, name.size());
      std::printf("\nregisters per thread + spilled bytes; \"ok\" if the compiler does not report them\n%-*s",
                  static_cast<int>(wide), "kernel");
      for (const std::string& c : columns_) std::printf(" %12s", c.c_str());
      std::printf("\n");
      for (const std::string& name : order_) {
        std::printf("%-*s", static_cast<int>(wide), name.c_str());
        for (const std::string& c : columns_) {
          const auto& row = cells_.at(name);
          const auto cell = row.find(c);
          std::string text = "-";
          if (cell != row.end()) {
            const Made& m = cell->second;
            text = m.registers < 0 ? "ok" : std::to_string(m.registers);
            if (m.spilled > 0) text += "+" + std::to_string(m.spilled);
          }
          std::printf(" %12s", text.c_str());
        }
        std::printf("\n");
      }
      std::printf("\n");
      for (const std::string& c : columns_) summary(c);
    }
    for (const std::string& m : missing_) std::printf("not installed: %s\n", m.c_str());
    std::printf(
        "Metal's compiler is only available on Apple's systems; \"metal as C++\" uses a host compiler and a test "
        "header\n");
  }

 private:
  void summary(const std::string& column) const {
    int kernels = 0, told = 0, spilling = 0;
    long registers = 0;
    for (const auto& [name, row] : cells_)
      if (const auto cell = row.find(column); cell != row.end()) {
        ++kernels;
        spilling += cell->second.spilled > 0;
        if (cell->second.registers >= 0) ++told, registers += cell->second.registers;
      }
    std::printf("%-14s compiles %4d kernels", column.c_str(), kernels);
    if (told > 0)
      std::printf(", %5.1f registers on average, %d spill", static_cast<double>(registers) / told, spilling);
    std::printf("\n");
  }

  std::vector<std::string> columns_, order_, missing_;
  std::map<std::string, std::map<std::string, Made>> cells_;
};

}  // namespace tessera::test
