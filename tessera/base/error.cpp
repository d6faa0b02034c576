// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/error.h"

#include "tessera/base/printable.h"

namespace tessera {

std::string error_text(const ErrorText& text) {
  std::string out;
  if (!text.operation.empty()) out.append("[").append(text.operation).append("] ");
  out += text.wrong;
  if (text.with.size() != 0) {
    out += " (";
    bool first = true;
    for (const auto& [name, value] : text.with) {
      if (!first) out += ", ";
      first = false;
      out.append(name).append(" = ").append(value);
    }
    out += ")";
  }
  if (!text.remedy.empty()) out.append(". ").append(text.remedy);
  return printable_text(out);  // it may contain a compiler's log
}

}  // namespace tessera
