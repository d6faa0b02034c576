// SPDX-License-Identifier: Apache-2.0
// Moving structures: all kinds of nesting, shared objects, views, arrays that are already on the device, and device_of.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <list>
#include <numeric>
#include <set>
#include <unordered_map>
#include <variant>

#include "tessera/base/philox.h"
#include "tessera/tessera.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::expect_throw;
using test::text_of;

const Device here{Backend::cpu, 0}, there{Backend::interp, 0};

Array numbers(std::int64_t n, double start = 0) { return Array::arange(n, start, 1, DType::f32, here); }
std::vector<float> values(const Array& a) { return a.to_vector<float>(); }

PlacementLog::Copies reached(const Placement& scope, Device device) {
  for (const auto& c : scope.log().copies)
    if (c.device == device) return c;
  return {};
}

enum class Kind { small, large };
struct Layer {
  Array weight, bias;
  int steps = 3;
};
struct Record {
  Layer layer;
  std::vector<Layer> layers;
  std::map<std::string, Array> named;
  std::unordered_map<int, std::optional<Array>> numbered;
  std::variant<int, Array, std::string> either;
  std::pair<double, float> mixed;
  std::tuple<Array, std::string> both;
  std::array<Array, 2> two;
  std::unique_ptr<Array> owned;
  std::shared_ptr<const Layer> shared;
  Kind kind;
  std::vector<double> plain;
  std::set<int> ids;
  std::deque<std::list<Array>> deep;
};

/// A class with private members that lists its fields.
class Dense {
 public:
  Dense(Array w, Array b, std::string name) : weight_(std::move(w)), bias_(std::move(b)), name_(std::move(name)) {}
  const Array& weight() const { return weight_; }
  const Array& bias() const { return bias_; }
  const std::string& name() const { return name_; }
  auto fields() { return std::tuple(field("weight", weight_), field("bias", bias_)); }

 private:
  Array weight_, bias_;
  std::string name_;
};
class Scale {
 public:
  explicit Scale(Array by) : by_(std::move(by)) {}
  const Array& by() const { return by_; }
  friend auto tessera_fields(Scale& s) { return std::tie(s.by_); }

 private:
  Array by_;
};
/// A type with its own tessera_move. It counts how often it was moved.
struct Own {
  explicit Own(Array a, int m = 0) : array(std::move(a)), moves(m) {}
  Array array;
  int moves;
  friend Own tessera_move(const Own& x, Mover& move) { return Own(move(x.array, "array"), x.moves + 1); }
};
struct NoDefault {
  explicit NoDefault(Array x) : a(std::move(x)) {}
  Array a;
  auto fields() { return std::tie(a); }
};
struct Holder {
  int before;
  NoDefault held;
};
struct Params {
  std::vector<Dense> layers;
  auto fields() { return std::tuple(field("layers", layers)); }
};
struct Node {
  Array a;
  std::shared_ptr<Node> next;
};

TEST(Move, NestedStructuresKeepValuesTypesAndShapes) {
  Record r{.layer = {numbers(6).reshape({2, 3}), numbers(3, 10)},
           .layers = {{numbers(2), numbers(3)}, {numbers(4, 7), Array::full({2}, 1.5, DType::f64, here)}},
           .named = {{"a", numbers(5)}, {"b", Array::from<std::int8_t>({1, -2, 3}, {}, here)}},
           .numbered = {{3, numbers(2, 30)}, {4, std::nullopt}},
           .either = numbers(4, 40),
           .mixed = {1.5, 2.5f},
           .both = {numbers(2, 50), "text"},
           .two = {numbers(1), numbers(2)},
           .owned = std::make_unique<Array>(numbers(3, 60)),
           .shared = std::make_shared<const Layer>(Layer{numbers(2, 70), numbers(2, 80)}),
           .kind = Kind::large,
           .plain = {1, 2, 3},
           .ids = {4, 5},
           .deep = {{numbers(2, 90)}, {}}};
  const Record moved = to(r, there);
  EXPECT_EQ(device_of(moved), there);
  EXPECT_EQ(device_of(r), here) << "the original is unchanged";
  const Record back = moved | here;
  EXPECT_EQ(device_of(back), here);
  for (const Record* m : {&moved, &back}) {
    EXPECT_EQ(m->layer.weight.shape(), (Shape{2, 3}));
    EXPECT_EQ(values(m->layer.weight), values(r.layer.weight));
    EXPECT_EQ(m->layer.steps, 3);
    ASSERT_EQ(m->layers.size(), 2u);
    EXPECT_EQ(m->layers[1].bias.dtype(), DType::f64);
    EXPECT_EQ(m->layers[1].bias.to_vector<double>(), (std::vector<double>{1.5, 1.5}));
    EXPECT_EQ(m->named.at("b").to_vector<std::int8_t>(), (std::vector<std::int8_t>{1, -2, 3}));
    EXPECT_EQ(values(*m->numbered.at(3)), values(*r.numbered.at(3)));
    EXPECT_FALSE(m->numbered.at(4));
    EXPECT_EQ(values(std::get<Array>(m->either)), values(std::get<Array>(r.either)));
    EXPECT_EQ(m->mixed, r.mixed);
    EXPECT_EQ(std::get<1>(m->both), "text");
    EXPECT_EQ(values(m->two[1]), values(r.two[1]));
    EXPECT_EQ(values(*m->owned), values(*r.owned));
    EXPECT_EQ(values(m->shared->bias), values(r.shared->bias));
    EXPECT_EQ(m->kind, Kind::large);
    EXPECT_EQ(m->plain, r.plain);
    EXPECT_EQ(m->ids, r.ids);
    EXPECT_EQ(values(m->deep[0].front()), values(r.deep[0].front()));
  }
}

TEST(Move, ArraysAlreadyOnTheDeviceAreNotCopied) {
  const Layer l{numbers(1000), numbers(10)};
  const auto shared = std::make_shared<Layer>(l);
  const Array pending = l.weight + 1;
  const Placement scope;
  const Layer same = to(l, here);
  EXPECT_EQ(same.weight.source(), l.weight.source());
  EXPECT_EQ(to(shared, here), shared);
  EXPECT_TRUE(to(pending, here).pending()) << "nothing is computed";
  EXPECT_EQ(to(to(l, there), there).bias.device(), there);
  std::unique_ptr<Layer> owned = std::make_unique<Layer>(l);
  const Layer* address = owned.get();
  EXPECT_EQ(to(std::move(owned), here).get(), address);
  std::uint64_t copies = 0;
  for (const auto& c : scope.log().copies)
    if (c.device == here) copies += c.to_host_count + c.to_device_count + c.within_count;
  EXPECT_EQ(copies, 2u) << "the two arrays that were on the other device";
}

TEST(Move, SharedArraysAndObjectsRemainShared) {
  const Array x = numbers(64);
  const auto object = std::make_shared<Layer>(Layer{x, numbers(4)});
  const auto node = std::make_shared<Layer>(*object);
  const Placement scope;
  auto [a, b, first, second, other] = to(std::tuple(x, x, object, object, node), there);
  EXPECT_EQ(a.source(), b.source());
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_EQ(first->weight.source(), a.source());
  EXPECT_EQ(other->bias.source(), first->bias.source());
  EXPECT_EQ(reached(scope, there).to_device_count, 2u) << "each storage once";
  b += Array::ones({64}, DType::f32, there);
  EXPECT_EQ(values(a), values(b));
  EXPECT_EQ(values(a)[5], 6);
  EXPECT_EQ(values(x)[5], 5);
}

TEST(Move, ViewsRemainViewsOfOneStorage) {
  const Array base = numbers(1000);
  const Array matrix = base.slice(0, 100, 112).reshape({3, 4});
  const Placement scope;
  auto [m, t, row, wide] =
      to(std::tuple(matrix, matrix.transpose(), matrix.select(0, 1), matrix.select(0, 0).broadcast_to({5, 4})), there);
  EXPECT_EQ(reached(scope, there).to_device_count, 1u);
  EXPECT_LE(reached(scope, there).to_device_bytes, 12 * 4 + 64u) << "only the range that they cover";
  EXPECT_EQ(t.strides(), matrix.transpose().strides());
  EXPECT_EQ(wide.strides(), (Strides{0, 1}));
  EXPECT_EQ(values(t), values(matrix.transpose()));
  EXPECT_EQ(values(wide), values(matrix.select(0, 0).broadcast_to({5, 4})));
  m.select(0, 1).fill(-1);
  EXPECT_EQ(values(row), std::vector<float>(4, -1));
  EXPECT_EQ(values(t)[1], -1);
  // If there is only one view with gaps, only its elements are copied.
  const Placement alone;
  const Array column = to(base.slice(0, 0, 1000, 100), there);
  EXPECT_EQ(values(column), values(base.slice(0, 0, 1000, 100)));
  EXPECT_EQ(reached(alone, there).to_device_bytes, 40u);
  // A pending expression is computed on the device of its operands.
  EXPECT_EQ(values(to(std::vector{base + 1, base * 2}, there)[1])[999], 1998);
}

TEST(Move, MovesClassesWithFieldsAndCustomMoveFunctions) {
  const Dense d(numbers(4), numbers(2), "dense");
  const Dense moved = d | there;
  EXPECT_EQ(moved.weight().device(), there);
  EXPECT_EQ(values(moved.bias()), values(d.bias()));
  EXPECT_EQ(moved.name(), "dense");
  EXPECT_EQ(d.weight().device(), here);
  EXPECT_EQ(to(Scale(numbers(3)), there).by().device(), there);
  const auto own = to(std::vector<std::map<int, Own>>{{{1, Own(numbers(3))}}}, there);
  EXPECT_EQ(own[0].at(1).array.device(), there);
  EXPECT_EQ(own[0].at(1).moves, 1);
  EXPECT_EQ(to(Holder{1, NoDefault(numbers(2))}, there).held.a.device(), there);
  EXPECT_EQ(device_of(own), there);
}

TEST(Move, ObserverSeesOneOperationPerMovedArray) {
  struct Watch : ArrayObserver {
    std::vector<std::string> seen;
    void made(const ArrayOperation& operation) override {
      const ArraySnapshot& operand = std::get<ArraySnapshot>(operation.operands[0]);
      seen.push_back(std::string(operation.name) + " " + to_string(operand.device()) + " " +
                     std::get<std::string>(operation.attributes[0].value));
      operation.results[0].set_history(operand.history());
    }
  } watch;
  Array x = numbers(8), same = x;
  x.set_history(std::make_shared<int>(1));
  same.set_history(std::make_shared<int>(2));
  const Array every_second = numbers(100).slice(0, 0, 100, 2);
  std::optional<std::tuple<Array, Array, std::vector<Array>, Array, Array>> moved;
  {
    const ObserverScope scope(&watch);
    moved = to(std::tuple(x, same, std::vector{every_second}, x | there, Array()), there);
  }
  EXPECT_EQ(watch.seen, std::vector<std::string>(5, "to cpu:0 interp:0")) << "one through operator|";
  EXPECT_EQ(std::get<0>(*moved).history(), x.history());
  EXPECT_EQ(std::get<1>(*moved).history(), same.history()) << "separate, although both share memory";
  EXPECT_EQ(std::get<0>(*moved).source(), std::get<1>(*moved).source());
}

TEST(Move, RejectsCyclesOfSharedPointers) {
  const auto last = std::make_shared<Node>(Node{numbers(2), nullptr});
  const auto first = std::make_shared<Node>(Node{numbers(3), last});
  const auto moved = to(first, there);
  EXPECT_EQ(moved->next->a.device(), there);
  last->next = first;
  expect_throw<ArgumentError>([&] { to(first, there); },
                              {"[to]", "an object that contains it", "next.next", "tessera_move"});
  EXPECT_EQ(device_of(first), here);
  last->next = nullptr;
}

TEST(Move, MissingDeviceThrowsEvenWithoutArrays) {
  expect_throw<DeviceError>([] { to(5, Device{Backend::interp, 99}); }, {"interp:99 does not exist"});
  EXPECT_EQ(to(5, there), 5);
  EXPECT_EQ(to(std::string("text"), there), "text");
}

// The type of a moved structure is known at compile time.
using Nested = std::tuple<Array, std::tuple<Array, int>, std::vector<Layer>>;
static_assert(std::is_same_v<decltype(to(std::declval<const Nested&>(), here)), Nested>);
static_assert(std::is_same_v<decltype(std::declval<Record>() | here), Record>);
static_assert(std::is_same_v<decltype(device_of(std::declval<Nested>())), std::optional<Device>>);

TEST(DeviceOf, ReturnsTheCommonDeviceOrThrowsWithPaths) {
  EXPECT_EQ(device_of(5), std::nullopt);
  EXPECT_EQ(device_of(std::vector<Array>{}), std::nullopt);
  EXPECT_EQ(device_of(std::string("x")), std::nullopt);
  EXPECT_EQ(device_of(Generator(1)), std::nullopt);
  EXPECT_EQ(device_of([](int n) { return n; }), std::nullopt);
  EXPECT_EQ(device_of(std::vector<std::optional<Array>>(3)), std::nullopt);
  const Array x = numbers(3);
  EXPECT_EQ(device_of(x.transpose().slice(0, 0, 2)), here);
  EXPECT_EQ(device_of(std::tuple(x | there, Array())), there) << "an array without elements does not count";
  EXPECT_EQ(device_of(Array()), here);
  const Params params{{Dense(x, x, "a"), Dense(x, x | there, "b")}};
  expect_throw<DeviceError>([&] { device_of(params, "params"); },
                            {"params.layers.0.weight: cpu:0", "params.layers.1.weight: cpu:0",
                             "params.layers.1.bias: interp:0", "to(value, device)"});
  EXPECT_EQ(device_of(params.layers[0]), here) << "parts can still be queried";
  const std::map<std::string, std::tuple<Layer, Own>> nested = {{"k", {Layer{x, x | there}, Own(x)}}};
  expect_throw<DeviceError>([&] { device_of(nested); },
                            {"value.k.0.weight: cpu:0", "value.k.0.bias: interp:0", "value.k.1.array: cpu:0"});
  std::vector<Array> many(50, x);
  many.push_back(x | there);
  expect_contains(text_of<DeviceError>([&] { device_of(many, "batch"); }),
                  {"batch.3: cpu:0 (and 46 more there), batch.50: interp:0"});
}

TEST(Generator, DrawsTheSameBitsOnEveryDeviceAndKeepsItsState) {
  struct State {
    Generator random;
    Array x;
  };
  State s{Generator(77), numbers(4)};
  EXPECT_EQ(s.random.bits({10}, here).to_vector<std::uint32_t>(),
            random_bits({10}, 77, here).to_vector<std::uint32_t>());
  EXPECT_EQ(s.random.offset(), 3u);
  State moved = to(s, there);
  EXPECT_EQ(moved.random, s.random);
  EXPECT_EQ(to(moved, here).random, s.random) << "a round trip";
  EXPECT_EQ(moved.random.bits({7}, there).to_vector<std::uint32_t>(),
            s.random.bits({7}, here).to_vector<std::uint32_t>());
  EXPECT_EQ(values(moved.random.uniform({9}, -1, 1, there)), values(s.random.uniform({9}, -1, 1, here)));
  const auto a = values(moved.random.normal({9}, 0, 1, there)), b = values(s.random.normal({9}, 0, 1, here));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  EXPECT_EQ(moved.random, s.random);
  // Drawing in several steps of whole blocks equals drawing in one step, even at a large offset.
  Generator pieces(5, (std::uint64_t{1} << 40) - 1), whole = pieces;
  auto left = pieces.bits({4}, here).to_vector<std::uint32_t>();
  const auto right = pieces.bits({8}, here).to_vector<std::uint32_t>();
  left.insert(left.end(), right.begin(), right.end());
  EXPECT_EQ(left, whole.bits({12}, here).to_vector<std::uint32_t>());
  const PhiloxCounter words = philox4x32(5, (std::uint64_t{1} << 40) - 1);
  EXPECT_TRUE(std::equal(words.begin(), words.end(), left.begin()));
  const Generator before = whole;
  EXPECT_THROW(whole.bits({4}, Device{Backend::interp, 99}), DeviceError);
  EXPECT_EQ(whole, before) << "a failed draw leaves the state unchanged";
}

}  // namespace
}  // namespace tessera
