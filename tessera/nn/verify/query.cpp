// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/query.h"

#include <fmt/format.h>

#include <set>

#include "tessera/device/launch/vendor_product.h"
#include "tessera/nn/verify/box_tree.h"
#include "tessera/nn/verify/structure.h"

namespace tessera::verification {

std::vector<float> centre_of(const InputBox& box) {
  std::vector<float> x(box.low.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(box.low[i] + (static_cast<double>(box.high[i]) - box.low[i]) / 2);
  return x;
}

Query make_query(const Runner& runner, const Property& p, const InputBox& box) {
  const std::vector<float> y = runner.outputs(centre_of(box));
  Query q{.root = {box.low, box.high}, .outputs = static_cast<std::int64_t>(y.size())};
  if (p.kind == Property::Kind::inequality && p.coefficients.size() != y.size())
    fail<ArgumentError>({.operation = "prove",
                         .with = {{"property", to_string(p)}, {"outputs", std::to_string(y.size())}},
                         .wrong = "the inequality needs one coefficient for each output"});
  if (p.kind == Property::Kind::robust) {
    q.kept_class = class_of(y.data(), q.outputs);
    for (std::size_t i = 0; i < box.low.size(); ++i) {
      q.root.lo[i] = round_outward(box.low[i] - p.radius, true);
      q.root.hi[i] = round_outward(box.high[i] + p.radius, false);
    }
    q.ball.emplace(Ball{box.low, box.high, p.radius, p.norm});
  }
  if (has_goals(p) && (p.kind != Property::Kind::robust || q.kept_class >= 0))
    q.goals = goals_of(p, q.outputs, q.kept_class);
  return q;
}

std::string products_of_vendors(const Network& net, const Subject& subject, std::int64_t batch) {
  std::set<Device> devices = {subject.device};  // a placed model may be on several devices
  Layers shared = subject.layers;
  for_each_array_of(shared, [&](const std::string&, const ModelArray& part) { devices.insert(part.device()); });
  for (const Device device : devices)
    for (const Network::Product& p : net.products) {
      const std::int64_t m = p.wider ? p.m : p.m * batch, n = p.wider ? p.n * batch : p.n;
      const BlasProduct product{.m = m,
                                .n = n,
                                .k = p.k,
                                .batch = p.count,
                                .a = {DType::f32, false, p.k, p.count == 1 ? 0 : m * p.k},
                                .b = {DType::f32, true, p.k, p.count == 1 ? 0 : n * p.k},
                                .out = {DType::f32, false, n, p.count == 1 ? 0 : m * n}};
      if (vendor_product_wanted(device, product))
        return fmt::format(
            "with a batch of {}, a product of {} x {} x {} may use a vendor library on {}, and its rounding is unknown "
            "(set TESSERA_BLAS=off to use Tessera's kernels)",
            batch, m, p.k, n, to_string(device));
    }
  return {};
}

}  // namespace tessera::verification
