// SPDX-License-Identifier: Apache-2.0
// mistake 1: this type cannot be traversed: list its parts
// mistake 1: {"value.layers.*.hidden"}
// mistake 2: an array of this structure is const here
// mistake 3: an array of this structure is const here
// mistake 4: the function must take an array of this structure
// mistake 5: the function must return an Array, the type of its argument
// mistake 6: a class that lists its fields must be copyable to be copied
// mistake 7: {"value.random"}
// mistake 8: use Param
// mistake 8: {"value.a"}
#include <functional>

#include "tessera/array/traversal.h"
using namespace tessera;

class Hidden {
 public:
  explicit Hidden(Array a) : a_(std::move(a)) {}

 private:
  Array a_;
};
struct Layer {
  Array weight;
  Hidden hidden;
};
struct Model {
  std::vector<Layer> layers;
};
struct Pointers {
  std::shared_ptr<const std::vector<Array>> arrays;
};
struct Param : Array {
  using Array::Array;
  Param(const Array& a) : Array(a) {}
};
struct Fine {
  Array a;
  Param parameter;
  std::map<int, Param> named;
};
struct Owner {
  std::unique_ptr<Array> a;
  auto fields() { return std::tie(a); }
};
struct Locked {
  std::function<void()> random;
  Array a;
};
/// Another use of the traversal, with its own error message.
struct ParametersOnly {
  struct leaves {
    template <class T>
    static constexpr bool is_leaf = false;
    template <class T>
    static constexpr bool is_refused = std::is_same_v<T, Array>;
  };
};
template <detail::Text type, detail::Text path>
struct NotAParameter {
  static_assert(sizeof(path.letters) == 0, "a model contains no plain arrays: use Param");
};
static_assert(!detail::traversable<Fine, ParametersOnly::leaves>);
static_assert(detail::traversable<std::vector<std::pair<int, Param>>, ParametersOnly::leaves>);

// GCC and clang both provide the names of members.
template <class T>
struct Generic {
  Array weight_;
  T with_2_numbers;
  int Größe;
};
struct WithBits {
  Array a;
  int bits : 3;
};
static_assert(detail::member_names<Generic<std::map<int, Array>>>[0] == "weight_");
static_assert(detail::member_names<Generic<std::map<int, Array>>>[1] == "with_2_numbers");
static_assert(detail::member_names<Generic<std::map<int, Array>>>[2] == "Größe");
static_assert(detail::member_names<WithBits>[0].empty(), "their addresses cannot be taken");

void walk(const Model& model, Pointers& shared, Fine& fine, const Fine& constant, const Owner& owner,
          const Locked& locked) {
  const auto write = [](Array& a) { a.fill(0); };
  const auto read = [](const Array& a) { a.eval(); };
#if MISTAKE == 1
  for_each_array(model, read);
#elif MISTAKE == 2
  for_each_array(constant, write);
#elif MISTAKE == 3
  for_each_array(shared, write);
#elif MISTAKE == 4
  for_each_array(fine, [](Param& p) { p.fill(0); });  // `a` is ignored, because it is not an array
#elif MISTAKE == 5
  map_arrays(fine, [](const Array& a) { return a.size(); });
#elif MISTAKE == 6
  map_arrays(owner, [](const Array& a) { return a; });
#elif MISTAKE == 7
  map_arrays(locked, [](const Array& a) { return a; });
#elif MISTAKE == 8
  detail::refuse<Fine, ParametersOnly::leaves, NotAParameter>();
#else
  for_each_array(fine, write);
  for_each_array(
      fine, [](Array& a, const Path&) { a.fill(0); }, "fine");
  for_each_array(shared, read);
  for_each_array(constant, read);
  const Fine mapped = map_arrays(constant, [](const Array& a) { return a + 1; });
  struct Local {
    Array inside;
  };
  static_assert(detail::member_names<Local>[0] == "inside");
  const Fine same = map_arrays(mapped, []<class A>(const A& a) { return Mapped<A>{a, false}; });
#endif
  (void)model, (void)shared, (void)fine, (void)constant, (void)owner, (void)locked, (void)write, (void)read;
}
