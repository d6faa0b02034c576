// SPDX-License-Identifier: Apache-2.0
// mistake 1: this type cannot be moved to a device: list its parts
// mistake 2: this type cannot be moved to a device: list its parts
// mistake 3: this type cannot be moved to a device: list its parts
// mistake 4: this type cannot be moved to a device: list its parts
// mistake 5: this type cannot be moved to a device: list its parts
// mistake 6: this type cannot be moved to a device: list its parts
// mistake 7: this type cannot be moved to a device: list its parts
// mistake 2: {"value.*"}
// mistake 4: {"Derived"}
// mistake 5: {"value.a"}
// mistake 8: this type cannot be moved to a device: list its parts
// mistake 8: {"value.blocks.*.attention.*.1.hidden"}
// mistake 8: {"Hidden"}
// mistake 9: {"value.state"}
// mistake 11: this type cannot be moved to a device: list its parts
// mistake 10: a plain aggregate has at most 32 members
#include <functional>

#include "tessera/array/move.h"
using namespace tessera;

class Hidden {
 public:
  explicit Hidden(Array a) : a_(std::move(a)) {}
  const Array& a() const { return a_; }

 private:
  Array a_;
};
struct Base {
  virtual ~Base() = default;
  Array a;
};
struct Part {
  Array a;
};
struct Derived : Part {
  Array b;
};
struct CArray {
  Array a[2];
};
struct Attention {
  Array weight;
  Hidden hidden;
};
struct Block {
  std::map<int, std::pair<Part, Attention>> attention;
  std::shared_ptr<Block> next;  // a recursive type
};
struct Stack {
  Array embedding;
  std::vector<Block> blocks;
};
#if MISTAKE == 11
/// Has its own to(), but a member has a type that cannot be moved.
struct Own {
  explicit Own(Hidden h) : hidden(std::move(h)) {}
  Hidden hidden;
  friend Own tessera_move(const Own& x, Mover& move) { return Own(move(x.hidden, "hidden")); }
};
#endif
struct Param : Array {
  using Array::Array;
  Param(const Array& a) : Array(a) {}
  std::function<void()> state;  // ignored, because a type derived from Array is treated as one array
};
struct Members32 {
  Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, bb, cc, dd, ee, ff;
};
struct Members33 {
  Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, bb, cc, dd, ee, ff, gg;
};
struct Fine {
  Array a;
  std::optional<std::vector<Part>> parts;
  int n;
  Param parameter;
  std::shared_ptr<Fine> next;
};

void make(const Fine& fine, const Hidden& hidden, const std::shared_ptr<Base>& base, const Derived& derived,
          const CArray& c_array, Array& array, const std::function<void()>& function, Device device) {
#if MISTAKE == 1
  to(hidden, device);
#elif MISTAKE == 2
  std::vector<Hidden>{hidden} | device;
#elif MISTAKE == 3
  to(base, device);
#elif MISTAKE == 4
  to(derived, device);
#elif MISTAKE == 5
  to(c_array, device);
#elif MISTAKE == 6
  to(&array, device);  // a pointer might not own the object
#elif MISTAKE == 7
  device_of(function);
#elif MISTAKE == 8
  to(Stack(), device);
#elif MISTAKE == 9
  struct Local {
    Array a;
    std::function<void()> state;
  };
  Local() | device;
#elif MISTAKE == 10
  to(Members33(), device);
#elif MISTAKE == 11
  to(Own(hidden), device);
#else
  to(Members32(), device);
  const Fine moved = to(fine, device);
  const auto both = std::pair(moved, 3) | device;
  device_of(both);
#endif
  (void)fine, (void)hidden, (void)base, (void)derived, (void)c_array, (void)array, (void)function, (void)device;
}
