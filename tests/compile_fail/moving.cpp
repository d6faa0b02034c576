// SPDX-License-Identifier: Apache-2.0
// mistake 1: this type cannot be moved to a device: list what moves
// mistake 2: this type cannot be moved to a device: list what moves
// mistake 3: this type cannot be moved to a device: list what moves
// mistake 4: this type cannot be moved to a device: list what moves
// mistake 5: this type cannot be moved to a device: list what moves
// mistake 6: this type cannot be moved to a device: list what moves
// mistake 7: this type cannot be moved to a device: list what moves
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
struct Fine {
  Array a;
  std::optional<std::vector<Part>> parts;
  int n;
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
  to(&array, device);  // what a pointer points to may be anybody's
#elif MISTAKE == 7
  device_of(function);
#else
  const Fine moved = to(fine, device);
  const auto both = std::pair(moved, 3) | device;
  device_of(both);
#endif
  (void)fine, (void)hidden, (void)base, (void)derived, (void)c_array, (void)array, (void)function, (void)device;
}
