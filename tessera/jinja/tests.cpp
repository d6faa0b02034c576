// SPDX-License-Identifier: Apache-2.0
// The tests that follow `is` in a template.
#include <map>

#include "tessera/jinja/filter_bodies.h"

namespace tessera::jinja {
namespace {

using A = const Arguments&;
using V = const Value&;

template <int sign, bool or_equal>
bool ordered(Interpreter&, V v, A a) {
  const int c = compare(v, a.get(0, "b"));
  return (or_equal && c == 0) || c * sign > 0;
}
bool is_equal(Interpreter&, V v, A a) { return equal(v, a.get(0, "b")); }
bool is_different(Interpreter&, V v, A a) { return !equal(v, a.get(0, "b")); }

bool text_is(V v, bool upper) {
  const std::string t = to_text(v).bytes;
  const std::string changed = upper ? to_upper(t) : to_lower(t), other = upper ? to_lower(t) : to_upper(t);
  return t == changed && changed != other;
}

const std::map<std::string_view, TestBody>& table() {
  static const std::map<std::string_view, TestBody> out = {
      {"defined", [](Interpreter&, V v, A) { return !v.is_undefined(); }},
      {"undefined", [](Interpreter&, V v, A) { return v.is_undefined(); }},
      {"none", [](Interpreter&, V v, A) { return v.is_none(); }},
      {"boolean", [](Interpreter&, V v, A) { return v.is_bool(); }},
      {"true", [](Interpreter&, V v, A) { return v.is_bool() && v.integer(); }},
      {"false", [](Interpreter&, V v, A) { return v.is_bool() && !v.integer(); }},
      {"integer", [](Interpreter&, V v, A) { return v.is_integer() && !v.is_bool(); }},
      {"float", [](Interpreter&, V v, A) { return v.is_real(); }},
      {"number", [](Interpreter&, V v, A) { return v.is_number(); }},
      {"string", [](Interpreter&, V v, A) { return v.is_text(); }},
      {"mapping", [](Interpreter&, V v, A) { return v.dict() != nullptr; }},
      {"sequence", [](Interpreter&, V v, A) { return v.items() || v.text() || v.dict(); }},
      {"iterable", [](Interpreter&, V v, A) { return v.items() || v.text() || v.dict() || v.is_undefined(); }},
      {"callable", [](Interpreter&, V v, A) { return v.object() && v.object()->callable(); }},
      {"odd", [](Interpreter&, V v, A) { return v.integer() % 2 != 0; }},
      {"even", [](Interpreter&, V v, A) { return v.integer() % 2 == 0; }},
      {"divisibleby",
       [](Interpreter&, V v, A a) {
         const std::int64_t by = a.get(0, "num").integer();
         if (by == 0) fault("division by zero");
         return by == -1 || v.integer() % by == 0;
       }},
      {"lower", [](Interpreter&, V v, A) { return text_is(v, false); }},
      {"upper", [](Interpreter&, V v, A) { return text_is(v, true); }},
      {"escaped", [](Interpreter&, V, A) { return false; }},
      {"in", [](Interpreter&, V v, A a) { return contains(a.get(0, "seq"), v); }},
      {"sameas", [](Interpreter&, V v, A a) { return v.same(a.get(0, "other")); }},
      {"filter", [](Interpreter&, V v, A) { return v.text() && find_filter(v.text()->bytes); }},
      {"test", [](Interpreter&, V v, A) { return v.text() && find_test(v.text()->bytes); }},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"==", is_equal},
      {"ne", is_different},
      {"!=", is_different},
      {"lt", ordered<-1, false>},
      {"lessthan", ordered<-1, false>},
      {"<", ordered<-1, false>},
      {"le", ordered<-1, true>},
      {"<=", ordered<-1, true>},
      {"gt", ordered<1, false>},
      {"greaterthan", ordered<1, false>},
      {">", ordered<1, false>},
      {"ge", ordered<1, true>},
      {">=", ordered<1, true>},
  };
  return out;
}

}  // namespace

TestBody find_test(std::string_view name) {
  const auto at = table().find(name);
  return at == table().end() ? nullptr : at->second;
}

}  // namespace tessera::jinja
