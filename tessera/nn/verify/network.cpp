// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "tessera/base/callback.h"

namespace tessera::verification {

namespace {

constexpr std::int64_t most_elements = 1 << 24;

std::vector<double> doubles(const Array& a) {
  const std::vector<float> v = a.to_vector<float>();
  return {v.begin(), v.end()};
}

class Builder {
 public:
  Builder(Network& net, const Shape& input) : net_(net), shape_(input) {
    net_.input = input;
    net_.nodes.push_back({.size = element_count(input), .path = "input"});
  }
  void add(const Layers& layers) {
    for (const Layer& layer : layers) {
      if (!net_.unknown.empty()) return;
      path_ = layer.path.empty() ? "the model" : layer.path;
      kind_ = kind_of(layer);
      std::visit([&](const auto& l) { one(l); }, layer.what);
    }
  }
  void finish() {
    if (net_.unknown.empty() && net_.nodes.size() == 1) refuse("the model has no layers");
    net_.output = shape_;
  }

 private:
  void refuse(const std::string& why) { net_.unknown = fmt::format("layer {} ({}): {}", path_, kind_, why); }
  void compiled() { refuse("it is folded, as in a compiled model. Prove the original model instead"); }
  [[noreturn]] void misfit(const std::string& takes) {
    fail<ShapeError>({.operation = "prove",
                      .with = {{"layer", path_}, {"kind", kind_}, {"input", to_string(shape_)}},
                      .wrong = "the layer takes " + takes});
  }
  std::int64_t size() const { return element_count(shape_); }
  int here() const { return static_cast<int>(net_.nodes.size()) - 1; }
  Node& push(Node node) {
    node.from = node.from < 0 ? here() : node.from;
    node.path = path_;
    if (node.size == 0) node.size = size();
    if (node.size > most_elements) refuse("a sample has more than 2^24 elements here");
    return net_.nodes.emplace_back(std::move(node));
  }
  bool fits(const ModelArray& part) {
    if (part.empty()) return true;
    if (part.dtype() == DType::f32) return true;
    refuse(fmt::format("its arrays are {}, but bounds need f32", dtype_name(part.dtype())));
    return false;
  }
  void curve(CurveKind kind, double slope = 0) {
    if (std::isfinite(slope))
      push({.kind = Node::Kind::curve, .curve = {kind, slope}});
    else
      refuse("its slope is not finite");
  }
  void affine(Linear m, const std::vector<double>& bias_by_row) {
    m.bias = bias_by_row;
    m.absolute.resize(static_cast<std::size_t>(m.rows));
    for (std::size_t r = 0; r < m.absolute.size(); ++r) {
      double sum = 0;
      std::int64_t terms = 1;
      for (std::size_t i = m.first[r]; i < m.first[r + 1]; ++i) {
        terms += m.runs[i].count;
        for (std::size_t w = 0; w < m.runs[i].count; ++w) sum += std::abs(m.weights[m.runs[i].at + w]);
      }
      m.absolute[r] = sum * (1 + 1e-9);
      m.terms = std::max(m.terms, terms);
      if (!std::isfinite(sum) || !std::isfinite(m.bias[r])) return refuse("it contains non-finite numbers");
    }
    const std::int64_t rows = m.rows;
    push({.kind = Node::Kind::linear, .size = rows, .linear = std::make_shared<Linear>(std::move(m))});
  }

  void one(const Dense& l) {
    if (l.folded != Activation::none || !l.sparse.empty()) return compiled();
    if (!l.packed.empty()) return refuse("its weight has 8-bit blocks (q8_0), but bounds need f32");
    if (l.weight.empty()) return refuse("the model was not set up");
    if (!fits(l.weight) || !fits(l.bias)) return;
    const std::int64_t out = l.weight.shape(0), in = l.weight.shape(1);
    if (shape_.empty() || shape_.back() != in) misfit(std::to_string(in) + " elements in the last axis");
    const std::int64_t before = in == 0 ? 0 : size() / in;
    if (before * out > most_elements) return refuse("a sample has more than 2^24 elements here");
    Linear m{.rows = before * out, .columns = size(), .weights = doubles(l.weight)};
    std::vector<double> bias(static_cast<std::size_t>(m.rows), 0.0);
    const std::vector<double> one_bias = l.bias.empty() ? std::vector<double>{} : doubles(l.bias);
    for (std::int64_t b = 0; b < before; ++b)
      for (std::int64_t r = 0; r < out; ++r) {
        m.first.push_back(m.runs.size());
        m.runs.push_back(
            {static_cast<std::uint32_t>(b * in), static_cast<std::uint32_t>(in), static_cast<std::size_t>(r * in)});
        if (!one_bias.empty()) bias[static_cast<std::size_t>(b * out + r)] = one_bias[static_cast<std::size_t>(r)];
      }
    m.first.push_back(m.runs.size());
    net_.products.push_back({before, out, in});
    shape_.back() = out;
    affine(std::move(m), bias);
  }

  /// Creates one row for each window of an image. The weights of output channel `out`, with `of_group` input channels,
  /// start at out * of_group * rows * columns.
  Linear windows(const Shape& to, Extents2d kernel, Extents2d stride, Extents2d padding, Extents2d dilation,
                 std::int64_t of_group, std::int64_t groups, bool one_kernel) {
    const std::int64_t h = shape_[1], w = shape_[2];
    Linear m{.rows = element_count(to), .columns = size()};
    for (std::int64_t o = 0; o < to[0]; ++o)
      for (std::int64_t y = 0; y < to[1]; ++y)
        for (std::int64_t x = 0; x < to[2]; ++x) {
          m.first.push_back(m.runs.size());
          const std::int64_t group = o / (to[0] / groups);
          for (std::int64_t c = 0; c < of_group; ++c)
            for (std::int64_t i = 0; i < kernel.rows; ++i) {
              const std::int64_t row = y * stride.rows - padding.rows + i * dilation.rows;
              if (row < 0 || row >= h) continue;
              for (std::int64_t j = 0; j < kernel.columns; ++j) {
                const std::int64_t column = x * stride.columns - padding.columns + j * dilation.columns;
                if (column < 0 || column >= w) continue;
                const std::int64_t kernel_row =
                    ((one_kernel ? 0 : o * of_group + c) * kernel.rows + i) * kernel.columns;
                const auto at = static_cast<std::size_t>(kernel_row + j);
                const auto place = static_cast<std::uint32_t>(((group * of_group + c) * h + row) * w + column);
                Linear::Run* last = m.runs.size() > m.first.back() ? &m.runs.back() : nullptr;
                if (last && last->column + last->count == place && last->at + last->count == at)
                  ++last->count;
                else
                  m.runs.push_back({place, 1, at});
              }
            }
        }
    m.first.push_back(m.runs.size());
    return m;
  }
  Shape image(const Callback<Shape(const Shape&)>& after, std::int64_t channels) {
    if (shape_.size() != 3 || (channels > 0 && shape_[0] != channels))
      misfit(channels > 0 ? fmt::format("images (channels, rows, columns) with {} channels", channels)
                          : std::string("images (channels, rows, columns)"));
    return after(shape_);
  }
  void one(const Conv2d& given) {
    Conv2d l = given;
    if (l.weight.empty()) return refuse("the model was not set up");
    if (!fits(l.weight) || !fits(l.bias)) return;
    l.out = l.weight.shape(0), l.in = l.weight.shape(1) * l.groups;
    l.kernel = {l.weight.shape(2), l.weight.shape(3)};
    const Shape to = image([&](const Shape& s) { return l.output_shape(s); }, l.in);
    const std::int64_t of_group = l.weight.shape(1), pixels = to[1] * to[2];
    if (element_count(to) * of_group * l.kernel.rows > most_elements)
      return refuse("a sample has more than 2^24 window rows here");
    Linear m = windows(to, l.kernel, l.stride, l.padding, l.dilation, of_group, l.groups, false);
    m.weights = doubles(l.weight);
    std::vector<double> bias(static_cast<std::size_t>(m.rows), 0.0);
    if (!l.bias.empty()) {
      const std::vector<double> b = doubles(l.bias);
      for (std::size_t r = 0; r < bias.size(); ++r) bias[r] = b[r / static_cast<std::size_t>(pixels)];
    }
    net_.products.push_back({l.out / l.groups, pixels, of_group * l.kernel.rows * l.kernel.columns, l.groups, true});
    shape_ = to;
    affine(std::move(m), bias);
  }
  void one(const AveragePool2d& l) {
    const Shape to = image([&](const Shape& s) { return l.output_shape(s); }, 0);
    const Extents2d stride = l.stride.value_or(l.kernel);
    Linear m = windows(to, l.kernel, stride, l.padding, 1, 1, to[0], true);
    const double n = static_cast<double>(l.kernel.rows * l.kernel.columns);
    m.weights.assign(static_cast<std::size_t>(n), 1 / n);
    m.terms = l.kernel.rows * l.kernel.columns + 4;  // the rounding of the division is included
    const std::vector<double> bias(static_cast<std::size_t>(m.rows), 0.0);
    shape_ = to;
    affine(std::move(m), bias);
  }
  void one(const MaxPool2d& l) {
    const Shape to = image([&](const Shape& s) { return l.output_shape(s); }, 0);
    const Linear m = windows(to, l.kernel, l.stride.value_or(l.kernel), l.padding, 1, 1, to[0], true);
    Node node{.kind = Node::Kind::largest, .size = m.rows};
    for (std::size_t r = 0; r < static_cast<std::size_t>(m.rows); ++r) {
      node.first.push_back(node.members.size());
      for (std::size_t i = m.first[r]; i < m.first[r + 1]; ++i)
        for (std::uint32_t j = 0; j < m.runs[i].count; ++j) node.members.push_back(m.runs[i].column + j);
      if (node.first.back() == node.members.size()) return refuse("a window contains only padding");
    }
    node.first.push_back(node.members.size());
    shape_ = to;
    push(std::move(node));
  }
  void one(const BatchNorm& l) {
    if (l.folded != 0) return compiled();
    if (l.running_mean.empty()) return refuse("the model was not set up");
    if (!fits(l.running_mean) || !fits(l.running_variance) || !fits(l.weight) || !fits(l.bias)) return;
    const std::int64_t channels = l.running_mean.shape(0);
    if (shape_.empty() || shape_[0] != channels) misfit(std::to_string(channels) + " channels");
    const std::vector<double> mean = doubles(l.running_mean), variance = doubles(l.running_variance);
    const std::vector<double> weight = l.weight.empty() ? std::vector<double>(mean.size(), 1.0) : doubles(l.weight);
    const std::vector<double> bias = l.bias.empty() ? std::vector<double>(mean.size(), 0.0) : doubles(l.bias);
    Node node{.kind = Node::Kind::diagonal};
    const std::int64_t pixels = channels == 0 ? 0 : size() / channels;
    for (std::size_t c = 0; c < mean.size(); ++c) {
      const double spread = variance[c] + l.epsilon;
      if (!(variance[c] >= 0 && spread > 1e-30 && spread < 1e30))
        return refuse(fmt::format("the running variance of channel {} is {}", c, variance[c]));
      const double inverse = 1 / std::sqrt(spread), scale = weight[c] * inverse;
      if (!std::isfinite(scale) || !std::isfinite(mean[c]) || !std::isfinite(bias[c]))
        return refuse("it contains non-finite numbers");
      for (std::int64_t i = 0; i < pixels; ++i)
        node.scale.push_back(scale), node.inverse.push_back(inverse), node.centre.push_back(mean[c]),
            node.shift.push_back(bias[c]);
    }
    push(std::move(node));
  }
  /// x_i| / sqrt(mean of x^2) is at most sqrt(n), regardless of earlier rounding. Weight and bias are applied
  /// afterwards.
  void norm(std::int64_t n, double epsilon, const std::vector<double>& weight, const std::vector<double>& bias) {
    if (n == 0 || size() % n != 0) misfit(std::to_string(n) + " elements in the last axes");
    if (!(epsilon >= 1e-12)) return refuse("its epsilon is below 1e-12");
    const double most = std::sqrt(static_cast<double>(n)) * (1 + gamma32(n + 32));
    Node node{.kind = Node::Kind::within};
    for (std::int64_t i = 0; i < size(); ++i) {
      const auto at = static_cast<std::size_t>(i % n);
      const double b = bias.empty() ? 0 : bias[at], w = std::abs(weight.empty() ? 1 : weight[at]) * most;
      if (!std::isfinite(w + b)) return refuse("it contains non-finite numbers");
      const double slack = 8 * ulp32 * (w + std::abs(b)) + 4 * smallest32;
      node.low.push_back(b - w - slack), node.high.push_back(b + w + slack);
    }
    node.limit = std::sqrt(largest32 / static_cast<double>(n)) / 4;
    push(std::move(node));
  }
  void one(const LayerNorm& l) {
    if (!fits(l.weight) || !fits(l.bias)) return;
    if (l.shape.empty()) return refuse("the model was not set up");
    norm(element_count(l.shape), l.epsilon, l.weight.empty() ? std::vector<double>{} : doubles(l.weight),
         l.bias.empty() ? std::vector<double>{} : doubles(l.bias));
  }
  void one(const RmsNorm& l) {
    if (l.weight.empty()) return refuse("the model was not set up");
    if (fits(l.weight)) norm(l.weight.shape(0), l.epsilon, doubles(l.weight), {});
  }
  void one(const Softmax& l) {
    const int rank = static_cast<int>(shape_.size()) + 1, axis = l.axis < 0 ? l.axis + rank : l.axis;
    if (axis < 1 || axis >= rank) return refuse("its axis is not an axis of a sample");
    Node node{.kind = Node::Kind::softmax, .count = shape_[static_cast<std::size_t>(axis - 1)], .stride = 1};
    for (std::size_t d = static_cast<std::size_t>(axis); d < shape_.size(); ++d) node.stride *= shape_[d];
    push(std::move(node));
  }
  void one(const ResidualLayer& l) {
    const int start = here();
    const Shape before = shape_;
    const std::string path = path_;
    add(*l.inside);
    if (!net_.unknown.empty()) return;
    path_ = path, kind_ = "Residual";
    if (shape_ != before)
      misfit("layers that preserve the shape of their input, but their result is " + to_string(shape_));
    const int inner = here();
    push({.kind = Node::Kind::sum, .from = start, .other = inner});
  }
  void one(const Flatten&) { shape_ = {size()}; }
  void one(const Dropout&) {}
  void one(const Relu& l) { l.folded ? compiled() : curve(CurveKind::relu); }
  void one(const Gelu& l) { l.folded ? compiled() : curve(CurveKind::gelu); }
  void one(const Silu& l) { l.folded ? compiled() : curve(CurveKind::silu); }
  void one(const Tanh& l) { l.folded ? compiled() : curve(CurveKind::tanh); }
  void one(const Sigmoid& l) { l.folded ? compiled() : curve(CurveKind::sigmoid); }
  void one(const LeakyRelu& l) { curve(CurveKind::leaky, static_cast<double>(static_cast<float>(l.slope))); }
  void one(const UnsupportedLayer& l) { kind_ = l.kind, refuse(l.why); }

  Network& net_;
  Shape shape_;
  std::string path_, kind_;
};

}  // namespace

Network network_of(const Layers& layers, const Shape& input) {
  Network net;
  Builder builder(net, input);
  builder.add(layers);
  builder.finish();
  return net;
}

}  // namespace tessera::verification
