// SPDX-License-Identifier: Apache-2.0
// Traversal of structures: the visited arrays, their paths and order, the results of map_arrays, and member names.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <random>
#include <set>
#include <unordered_map>
#include <variant>

#include "tessera/array/generator.h"
#include "tessera/array/move.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Paths = std::vector<std::string>;
Array range(std::int64_t n, double start = 0) { return Array::arange(n, start, 1, DType::f32); }
std::vector<float> values(const Array& a) { return a.to_vector<float>(); }
template <class T>
Paths paths_of(const T& x, std::string_view root = {}) {
  Paths paths;
  for_each_array(
      x, [&](const Array&, const Path& path) { paths.push_back(path.text()); }, root);
  return paths;
}

/// An array with additional members, like a parameter of a layer.
struct Param : Array {
  Param() = default;
  Param(const Array& a, bool f = false) : Array(a), frozen(f) {}
  bool frozen = false;
};
struct State : Array {
  using Array::Array;
  State(const Array& a) : Array(a) {}
};
struct Linear {
  Param weight, bias;
};
enum class Color { red, green = 7 };
/// A class with private members.
class Listed {
 public:
  explicit Listed(Array a, Array b) : a_(std::move(a)), b_(std::move(b)) {}
  auto fields() { return std::tuple<Field<Array>, Array&>(field("first", a_), b_); }
  const Array& b() const { return b_; }

 private:
  Array a_, b_;
};
struct Everything {
  Linear linear;
  std::vector<Linear> layers;
  std::map<std::string, Array> named;
  std::optional<Param> maybe, never;
  std::variant<int, Array, Linear> either, other;
  std::tuple<Array, std::string, Linear> three;
  std::pair<int, State> two;
  std::array<Array, 2> fixed;
  std::deque<std::list<Array>> deep;
  std::unique_ptr<Linear> owned;
  std::shared_ptr<const Linear> shared, again;
  std::shared_ptr<Array> none;
  std::unordered_map<int, Array> numbered;
  std::multimap<Color, Array> colored;
  Listed listed;
  int steps;
  std::vector<double> plain;
};
Everything everything() {
  const auto shared = std::make_shared<const Linear>(Linear{range(1), range(2)});
  std::unordered_map<int, Array> numbered;
  for (const int key : {30, -4, 7, 100, 15}) numbered.emplace(key, range(2, key));
  Everything e{.linear = {Param(range(6).reshape({2, 3}), true), range(3, 10)},
               .layers = {{range(2), range(3)}, {range(4, 7), Param(range(2, 8), true)}},
               .named = {{"head", range(5)}, {"a.b", range(1)}},
               .maybe = Param(range(2, 20)),
               .never = std::nullopt,
               .either = Linear{range(4, 40), range(1)},
               .other = 5,
               .three = {range(2, 50), "text", Linear{range(2), range(2)}},
               .two = {3, range(2, 60)},
               .fixed = {range(1), range(2)},
               .deep = {{range(2, 90)}, {}, {range(1), range(2)}},
               .owned = std::make_unique<Linear>(Linear{range(3), range(4)}),
               .shared = shared,
               .again = shared,
               .none = nullptr,
               .numbered = numbered,
               .colored = {{Color::green, range(1)}, {Color::red, range(2)}, {Color::green, range(3)}},
               .listed = Listed(range(2), range(3)),
               .steps = 3,
               .plain = {1, 2}};
  return e;
}
const Paths paths_of_everything = {
    "linear.weight", "linear.bias",    "layers.0.weight", "layers.0.bias", "layers.1.weight",
    "layers.1.bias", "named[\"a.b\"]", "named.head",      "maybe",         "either.weight",
    "either.bias",   "three.0",        "three.2.weight",  "three.2.bias",  "two.1",
    "fixed.0",       "fixed.1",        "deep.0.0",        "deep.2.0",      "deep.2.1",
    "owned.weight",  "owned.bias",     "shared.weight",   "shared.bias",  // not visited again through `again`
    "numbered.-4",   "numbered.7",     "numbered.15",     "numbered.30",   "numbered.100",
    "colored.0.0",   "colored.7.0",    "colored.7.1",     "listed.first",  "listed.1"};

TEST_P(OnEveryDevice, VisitsEveryArrayOnceInOrderWithItsPath) {
  const Everything e = everything();
  EXPECT_EQ(paths_of(e), paths_of_everything);
  Paths rooted;
  for (const std::string& path : paths_of_everything) rooted.push_back("model." + path);
  EXPECT_EQ(paths_of(e, "model"), rooted);
  EXPECT_EQ(paths_of(e.linear.weight), Paths{""});
  EXPECT_EQ(paths_of(e.named, "m"), (Paths{"m[\"a.b\"]", "m.head"}));
  EXPECT_EQ(paths_of(std::pair(5, std::string("none"))), Paths{});
  // Each array is passed as its own type.
  std::map<std::string, int> kinds;
  for_each_array(e, [&]<class A>(const A& a) {
    EXPECT_EQ(a.device(), GetParam());
    ++kinds[std::is_same_v<A, Param> ? "parameter" : std::is_same_v<A, State> ? "state" : "array"];
  });
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"parameter", 15}, {"state", 1}, {"array", 18}}));
}

TEST_P(OnEveryDevice, VisitorCanModifyArrays) {
  struct Model {
    std::vector<Linear> layers;
    std::map<std::string, std::optional<Array>> named;
    std::shared_ptr<Linear> shared, again;
    std::variant<int, Array> either;
    std::unique_ptr<Array> owned;
    Listed listed;
    std::unordered_map<std::string, std::tuple<Array, int>> more;
  };
  const auto shared = std::make_shared<Linear>(Linear{range(1), range(2)});
  Model m{.layers = {{Param(range(2), true), range(3)}},
          .named = {{"a", range(2)}, {"b", std::nullopt}},
          .shared = shared,
          .again = shared,
          .either = range(2),
          .owned = std::make_unique<Array>(range(2)),
          .listed = Listed(range(1), range(2)),
          .more = {{"x", {range(2), 1}}}};
  std::vector<std::vector<float>> before;
  for_each_array(m, [&](const Array& a) { before.push_back(values(a)); });
  ASSERT_EQ(before.size(), 10u);
  std::vector<const Array*> written;
  for_each_array(m, [&](Array& a) {
    written.push_back(&a);
    a = a + 1;
  });
  for_each_array(m, [](Array& a) { a += 1; });
  std::size_t i = 0;
  for_each_array(std::as_const(m), [&](const Array& a) {
    EXPECT_EQ(&a, written[i]);
    std::vector<float> want = before[i++];
    for (float& v : want) v += 2;
    EXPECT_EQ(values(a), want);
  });
  EXPECT_TRUE(m.layers[0].weight.frozen) << "the other members are unchanged";
  EXPECT_EQ(values(m.again->bias), (std::vector<float>{2, 3})) << "a shared object is changed once";
}

TEST_P(OnEveryDevice, MapArraysReplacesArraysAndKeepsTypes) {
  const Everything e = everything();
  Paths paths;
  const Everything twice = map_arrays(
      e,
      [&](const Array& a, const Path& path) {
        paths.push_back(path.text());
        return a * 2;
      },
      "e");
  Paths want;
  for (const std::string& path : paths_of_everything) want.push_back("e." + path);
  EXPECT_EQ(paths, want);
  EXPECT_EQ(paths_of(twice), paths_of_everything);
  std::vector<std::vector<float>> doubled;
  for_each_array(e, [&](const Array& a) { doubled.push_back(values(a * 2)); });
  std::size_t i = 0;
  for_each_array(twice, [&](const Array& a) { EXPECT_EQ(values(a), doubled[i++]) << paths_of_everything[i - 1]; });
  EXPECT_TRUE(twice.linear.weight.frozen);
  EXPECT_FALSE(twice.linear.bias.frozen);
  EXPECT_EQ(twice.linear.weight.shape(), (Shape{2, 3}));
  EXPECT_EQ(twice.shared, twice.again);
  EXPECT_NE(twice.shared, e.shared);
  EXPECT_FALSE(twice.never);
  EXPECT_FALSE(twice.none);
  EXPECT_EQ(std::get<int>(twice.other), 5);
  EXPECT_EQ(std::get<1>(twice.three), "text");
  EXPECT_EQ(twice.steps, 3);
  EXPECT_EQ(twice.plain, e.plain);
  // The function can return a derived type, and can report that nothing has changed.
  const auto shared = std::make_shared<Linear>(Linear{Param(range(1)), Param(range(1))});
  const auto other = std::make_shared<Linear>(Linear{Param(range(1)), Param(range(1), true)});
  const std::vector thawed = map_arrays(std::vector{shared, other, shared}, [](const Param& p) {
    return Mapped<Param>{Param(p, false), p.frozen};
  });
  EXPECT_EQ(thawed[0], shared) << "the same object";
  EXPECT_EQ(thawed[2], shared);
  EXPECT_NE(thawed[1], other);
  EXPECT_FALSE(thawed[1]->bias.frozen);
  EXPECT_TRUE(other->bias.frozen);
  EXPECT_EQ(values(thawed[1]->weight), values(other->weight));
}

struct Tree {
  Array here;
  std::vector<Tree> children;
  std::shared_ptr<Tree> right;
};
Tree random_tree(std::mt19937_64& random, int depth, const std::string& path, Paths& want) {
  const auto step = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  Tree tree{range(static_cast<std::int64_t>(random() % 4)), {}, nullptr};
  want.push_back(step("here"));
  if (depth > 0) {
    for (std::size_t i = 0, n = random() % 4; i < n; ++i)
      tree.children.push_back(random_tree(random, depth - 1, step("children." + std::to_string(i)), want));
    if (random() % 2) tree.right = std::make_shared<Tree>(random_tree(random, depth - 1, step("right"), want));
  }
  return tree;
}
TEST_P(OnEveryDevice, RandomTreesMatchAHandWrittenTraversal) {
  for (int i = 0; i < 20; ++i) {
    Paths want;
    const Tree tree = random_tree(random, 4, "", want);
    EXPECT_EQ(paths_of(tree), want);
    EXPECT_EQ(paths_of(map_arrays(tree, [](const Array& a) { return a + 1; })), want);
  }
}

TEST_P(OnEveryDevice, CyclesAreVisitedButCopyingThemThrows) {
  struct Model {
    std::vector<Tree> trees;
  };
  const auto last = std::make_shared<Tree>(Tree{range(1), {}, nullptr});
  last->right = std::make_shared<Tree>(Tree{range(1), {Tree{range(1), {}, last}}, nullptr});
  const Model model{{Tree{range(1), {}, nullptr}, Tree{range(1), {}, last}}};
  EXPECT_EQ(paths_of(model).size(), 5u);
  expect_throw<ArgumentError>([&] { map_arrays(model, [](const Array& a) { return a; }); },
                              {"[map_arrays]", "an object that contains it", "trees.1.right.right.children.0.right"});
  last->right = nullptr;
}

TEST_P(OnEveryDevice, ExceptionsFromVisitorsPropagate) {
  const Everything e = everything();
  int met = 0;
  const auto third = [&](const Array& a) {
    if (++met == 3) throw std::runtime_error("the third");
    return a;
  };
  EXPECT_THROW(for_each_array(e, third), std::runtime_error);
  EXPECT_EQ(std::exchange(met, 0), 3);
  EXPECT_THROW(map_arrays(e, third), std::runtime_error);
  EXPECT_EQ(met, 3);
}

/// A visitor can receive objects of other types as leaves.
struct Finder {
  struct leaves {
    template <class T>
    static constexpr bool is_leaf = std::is_same_v<T, Generator> || std::is_same_v<T, Linear>;
  };
  Paths found;
  void operator()(const Array&, const Path& path) { found.push_back("array " + path.text()); }
  void operator()(const Generator&, const Path& path) { found.push_back("generator " + path.text()); }
  void operator()(const Linear&, const Path& path) { found.push_back("linear " + path.text()); }
};
TEST_P(OnEveryDevice, VisitorCanReceiveOtherTypesAsLeaves) {
  struct Model {
    std::vector<Generator> generators;
    std::map<int, Linear> layers;
    Param scale;
    Generator random;
  };
  const Model m{{Generator(1), Generator(2)}, {{4, {range(1), range(2)}}}, range(1), Generator(3)};
  Finder finder;
  for_each_array(m, finder);
  EXPECT_EQ(finder.found, (Paths{"generator generators.0", "generator generators.1", "linear layers.4", "array scale",
                                 "generator random"}));
  EXPECT_EQ(paths_of(m), (Paths{"layers.4.weight", "layers.4.bias", "scale"}));
}

TEST_P(OnEveryDevice, MovingKeepsTypesDerivedFromArray) {
  const Device there = GetParam().backend == Backend::interp ? Device{Backend::cpu, 0} : Device{Backend::interp, 0};
  const Array x = range(6);
  const auto model = std::tuple(Linear{Param(x, true), range(2)}, std::vector<State>{State(x)}, Param(x));
  const auto moved = to(model, there);
  static_assert(std::is_same_v<decltype(moved), decltype(model)>);
  EXPECT_EQ(device_of(moved), there);
  EXPECT_TRUE(std::get<0>(moved).weight.frozen);
  EXPECT_EQ(values(std::get<0>(moved).weight), values(x));
  EXPECT_EQ(std::get<1>(moved)[0].source(), std::get<0>(moved).weight.source()) << "still the same memory";
  EXPECT_EQ(std::get<2>(moved).source(), std::get<0>(moved).weight.source());
  EXPECT_EQ(to(Param(x, true), GetParam()).source(), x.source());
  const std::map<std::string, Linear> apart = {{"a", {x, x | there}}};
  expect_throw<DeviceError>([&] { device_of(apart, "model"); },
                            {"model.a.weight: " + to_string(GetParam()), "model.a.bias: " + to_string(there)});
}

// Member names.
struct Members32 {
  Array m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23,
      m24, m25, m26, m27, m28, m29;
  std::optional<Array> m30;
  Param m31;
};
struct NoDefault {
  explicit NoDefault(Array x) : inner(std::move(x)) {}
  Array inner;
  auto fields() { return std::tuple(field("inner", inner)); }
};
struct Mixed {
  const Array constant;
  NoDefault no_default;
  std::unique_ptr<Array> pointer;
  std::vector<Array> Größe, with_1_number_2;
};
struct BitField {
  Array array;
  unsigned bits : 3;
  Array behind;
};
template <class T, class U>
auto local_in_a_template(T first, U second) {
  struct Local {
    T of_first;
    U of_second;
  };
  return Local{std::move(first), std::move(second)};
}
// clang-format off
struct M1 { Array a; };
struct M3 { Array a; int b; std::optional<Array> c; };
struct M5 { Array a, b; std::optional<Array> c; std::vector<Array> d; Param e; };
struct M13 { Array a, b, c, d, e, f, g, h, i, j, k, l, m; };
struct M17 { Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q; };
struct M24 { Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x; };
struct M31 { Array a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, bb, cc, dd, ee; };
// clang-format on

TEST_P(OnEveryDevice, PathsContainTheNamesOfAggregateMembers) {
  Members32 all{};
  Paths want;
  int n = 0;
  for_each_array(all, [&](Array& a) { a = range(1, n++); });  // m30 is empty
  ASSERT_EQ(n, 31);
  all.m30 = range(1, 30);
  all.m31 = Param(range(1, 31), true);
  for (int i = 0; i < 32; ++i) want.push_back("m" + std::to_string(i));
  EXPECT_EQ(paths_of(all), want);
  const Members32 next = map_arrays(all, [](const Array& a) { return a + 1; });
  int i = 0;
  for_each_array(next, [&](const Array& a) { EXPECT_EQ(a.item<float>(), static_cast<float>(++i)); });
  EXPECT_TRUE(next.m31.frozen);

  const Mixed mixed{range(1), NoDefault(range(1)), std::make_unique<Array>(range(1)), {range(1)}, {range(1)}};
  EXPECT_EQ(paths_of(mixed), (Paths{"constant", "no_default.inner", "pointer", "Größe.0", "with_1_number_2.0"}));
  EXPECT_EQ(paths_of(map_arrays(mixed, [](const Array& a) { return a * 2; })), paths_of(mixed));
  EXPECT_EQ(paths_of(local_in_a_template(range(1), std::map<char, Array>{{'k', range(1)}})),
            (Paths{"of_first", "of_second.k"}));
  const auto in_a_lambda = [](auto x) {
    struct Inside {
      decltype(x) deep;
    };
    return Inside{x};
  };
  EXPECT_EQ(paths_of(in_a_lambda(range(1))), Paths{"deep"});
  const BitField bits{range(1), 5, range(1)};
  EXPECT_EQ(paths_of(bits), (Paths{"0", "2"})) << "numbers if names are unknown";
  EXPECT_EQ(map_arrays(bits, [](const Array& a) { return a; }).bits, 5u);

  EXPECT_EQ(paths_of(M1{}).back(), "a");
  EXPECT_EQ(paths_of(M3{{}, 1, Array()}), (Paths{"a", "c"}));
  EXPECT_EQ(paths_of(M5{{}, {}, Array(), {Array()}, {}}), (Paths{"a", "b", "c", "d.0", "e"}));
  EXPECT_EQ(paths_of(M13{}).back(), "m");
  EXPECT_EQ(paths_of(M17{}).back(), "q");
  EXPECT_EQ(paths_of(M24{}).back(), "x");
  EXPECT_EQ(paths_of(M31{}).back(), "ee");
}

// Paths.
TEST_P(OnEveryDevice, PathsQuoteMapKeysThatAreNotPlainWords) {
  const Array x = range(1);
  EXPECT_EQ(
      paths_of(std::map<std::string, Array>{{"", x}, {"a\"\\b", x}, {"line\n", x}, {"plain-1_ä", x}, {"two words", x}}),
      (Paths{"[\"\"]", "[\"a\\\"\\\\b\"]", "[\"line\\x0a\"]", "plain-1_ä", "[\"two words\"]"}));
  EXPECT_EQ(paths_of(std::map<bool, Array>{{true, x}, {false, x}}), (Paths{"false", "true"}));
  EXPECT_EQ(paths_of(std::map<Color, Array>{{Color::green, x}}), Paths{"7"});
  EXPECT_EQ(paths_of(std::map<std::uint64_t, Array>{{~std::uint64_t{0}, x}}), Paths{"18446744073709551615"});
  EXPECT_EQ(paths_of(std::map<double, Array>{{-0.5, x}, {2, x}}), (Paths{"[\"-0.5\"]", "2"}));
  EXPECT_EQ(paths_of(std::map<std::vector<int>, Array>{{{2, 1}, x}, {{1, 2}, x}}), (Paths{"#0", "#1"}));
  EXPECT_EQ(
      paths_of(std::unordered_multimap<std::string, std::vector<Array>>{{"b", {x, x}}, {"a", {x}}, {"b", {x}}}).size(),
      4u);
}
TEST_P(OnEveryDevice, PathsAreUnique) {
  using Inner = std::map<std::string, Array>;
  const std::string_view letters = "a.\"\\[]0 \n";
  const auto word = [&] {
    std::string text;
    for (std::size_t i = 0, n = random() % 4; i < n; ++i) text += letters[random() % letters.size()];
    return text;
  };
  std::map<std::string, Inner> nested;
  std::size_t count = 0;
  for (int i = 0; i < 200; ++i) nested[word()][word()] = Array();
  for (const auto& [key, inner] : nested) count += inner.size();
  const Paths paths = paths_of(nested);
  EXPECT_EQ(paths.size(), count);
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), count);
}
TEST_P(OnEveryDevice, UnorderedMapsAreVisitedInKeyOrder) {
  std::map<std::int64_t, Array> ordered;
  std::unordered_map<std::int64_t, Array> one, other(1000);
  for (int i = 0; i < 100; ++i) ordered.emplace(static_cast<std::int64_t>(random() % 1000), Array());
  std::vector<std::int64_t> keys;
  for (const auto& [key, array] : ordered) keys.push_back(key);
  for (const std::int64_t key : keys) one.emplace(key, Array());
  std::shuffle(keys.begin(), keys.end(), random);
  for (const std::int64_t key : keys) other.emplace(key, Array());
  EXPECT_EQ(paths_of(one), paths_of(ordered));
  EXPECT_EQ(paths_of(other), paths_of(ordered));
  EXPECT_EQ(paths_of(map_arrays(other, [](const Array& a) { return a; })), paths_of(ordered));
}

}  // namespace
}  // namespace tessera
