// SPDX-License-Identifier: Apache-2.0
// Python's arithmetic operators and % formatting.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/jinja/interpreter.h"

namespace tessera::jinja {
namespace {

[[noreturn]] void unsupported(const std::string& op, const Value& a, const Value& b) {
  // The message is the same as in Python. The usual cause is str + int.
  fault("unsupported operand types for " + op + ": '" + a.type() + "' and '" + b.type() + "'");
}

Value whole(const std::string& op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool large = false;
  if (op == "+") large = __builtin_add_overflow(a, b, &out);
  if (op == "-") large = __builtin_sub_overflow(a, b, &out);
  if (op == "*") large = __builtin_mul_overflow(a, b, &out);
  if (op == "/" || op == "//" || op == "%") {
    if (b == 0) fault("division by zero");
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {
      large = op == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &out);
      if (op == "%") out = 0;
    } else {
      const std::int64_t rest = a % b, floor = a / b - (rest != 0 && (rest < 0) != (b < 0));
      out = op == "//" ? floor : a - floor * b;
    }
  }
  if (op == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    out = 1;
    // Powers of 0, 1 and -1 do not grow. Powers of any other base overflow within 63 steps.
    if (a == -1) b %= 2;
    if (a == 0 || a == 1) b = b > 0;
    for (std::int64_t i = 0; i < b && !large; ++i) large = __builtin_mul_overflow(out, a, &out);
  }
  if (large) fault("the integer does not fit in 64 bits");
  return out;
}

Value real(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) fault("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == "%" ? rest : std::floor((a - rest) / b + 0.5);
}

Value repeated(Interpreter& in, const Value& of, std::int64_t times) {
  const auto n = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (const Text* t = of.text()) {
    if (t->bytes.empty()) return of;
    if (n > (std::size_t{1} << 40) / t->bytes.size()) fault("the template produces too much text");
    in.room(n * t->bytes.size());
    Text out;
    for (std::size_t i = 0; i < n; ++i) out.append(*t);
    return out;
  }
  const List* l = of.items();
  if (l->items.empty()) return of;
  if (n > (std::size_t{1} << 40) / l->items.size()) fault("the template takes too many steps");
  in.spend(4 * n * l->items.size());
  std::vector<Value> out;
  for (std::size_t i = 0; i < n; ++i) out.insert(out.end(), l->items.begin(), l->items.end());
  return l->tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

}  // namespace

Value arithmetic(Interpreter& in, const std::string& op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return whole(op, a.integer(), b.integer());
    return real(op, a.real(), b.real());
  }
  if (op == "%" && a.text()) return format_percent(in, *a.text(), b);
  if (op == "+") {
    if (const Text *x = a.text(), *y = b.text(); x && y) {
      const bool markup = x->markup || y->markup;
      Text out = markup && !x->markup ? escaped(*x) : *x;
      out.append(markup && !y->markup ? escaped(*y) : *y);
      return out;
    }
    if (const List *x = a.items(), *y = b.items(); x && y && x->tuple == y->tuple) {
      in.spend(4 * (x->items.size() + y->items.size()));
      std::vector<Value> out = x->items;
      out.insert(out.end(), y->items.begin(), y->items.end());
      return x->tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
    }
  }
  if (op == "*") {
    if ((a.text() || a.items()) && b.is_integer()) return repeated(in, a, b.integer());
    if ((b.text() || b.items()) && a.is_integer()) return repeated(in, b, a.integer());
  }
  unsupported(op, a, b);
}

Text format_percent(Interpreter& in, const Text& form, const Value& values) {
  const List* many = values.items() && values.items()->tuple ? values.items() : nullptr;
  const std::string& f = form.bytes;
  Text out;
  std::size_t used = 0;
  const auto next = [&](const std::string& key) -> Value {
    if (!key.empty()) {
      const Value* v = values.dict() ? values.dict()->find(key) : nullptr;
      if (!v) fault("format: there is no key '" + key + "'");
      return *v;
    }
    if (used >= (many ? many->items.size() : 1)) fault("not enough arguments for format string");
    return many ? many->items[used++] : (++used, values);
  };
  for (std::size_t at = 0; at < f.size();) {
    const std::size_t percent = std::min(f.find('%', at), f.size());
    out.append(form.part(at, percent));
    if (percent == f.size()) break;
    at = percent + 1;
    std::string key, flags, width, digits;
    if (at < f.size() && f[at] == '(') {
      const std::size_t end = f.find(')', at);
      if (end == f.npos) fault("incomplete format key");
      key = f.substr(at + 1, end - at - 1), at = end + 1;
    }
    while (at < f.size() && std::string("-+ 0#").find(f[at]) != std::string::npos) flags += f[at++];
    while (at < f.size() && f[at] >= '0' && f[at] <= '9') width += f[at++];
    bool exact = at < f.size() && f[at] == '.';
    if (exact) ++at;
    while (exact && at < f.size() && f[at] >= '0' && f[at] <= '9') digits += f[at++];
    if (at >= f.size()) fault("incomplete format");
    if (width.size() > 4 || digits.size() > 3) fault("format: the width has more than 4 digits");
    const char kind = f[at++];
    if (kind == '%') {
      out.append("%");
      continue;
    }
    const Value v = next(key);
    Text text;
    const std::string precision = exact ? "." + (digits.empty() ? "0" : digits) : "";
    char buffer[1200];
    switch (kind) {
      case 's': text = to_text(v); break;
      case 'r': text = to_repr(v); break;
      case 'd':
      case 'i':
      case 'x':
      case 'X':
      case 'o': {
        const std::int64_t i = v.is_real() ? truncated(v.real()) : v.integer();
        const std::string spec = "%" + flags + width + precision + "ll" + kind;
        std::snprintf(buffer, sizeof buffer, spec.c_str(), static_cast<long long>(i));  // NOLINT
        text = Text(std::string(buffer));
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const std::string spec = "%" + flags + width + precision + kind;
        if (std::snprintf(buffer, sizeof buffer, spec.c_str(), v.real()) >= int(sizeof buffer))  // NOLINT
          fault("format: the number has more than 1,200 characters");
        text = Text(std::string(buffer));
        break;
      }
      case 'c': text = v.text() ? *v.text() : Text(std::string(1, static_cast<char>(v.integer()))); break;
      default: fault(std::string("unsupported format character '") + kind + "'");
    }
    if (kind == 's' || kind == 'r') {
      const auto starts = character_starts(text.bytes);
      std::size_t n = starts.size() - 1;
      if (exact) n = std::min<std::size_t>(n, std::stoul("0" + digits)), text = text.part(0, starts[n]);
      const std::size_t wide = width.empty() ? 0 : std::stoul(width);
      const std::string pad(wide > n ? wide - n : 0, ' ');
      if (flags.find('-') == flags.npos) out.append(pad);
      out.append(text);
      if (flags.find('-') != flags.npos) out.append(pad);
    } else {
      out.append(text);
    }
    if (out.bytes.size() > (std::size_t{1} << 20)) in.room(out.bytes.size());
  }
  if (!values.dict() && used < (many ? many->items.size() : 1)) fault("not all arguments converted in formatting");
  return out;
}

}  // namespace tessera::jinja
