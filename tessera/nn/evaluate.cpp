// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/evaluate.h"

#include <algorithm>
#include <bit>

#include "tessera/nn/exchange.h"

namespace tessera {

double figure(const Figures& figures, const std::string& name) {
  std::string names;
  for (const auto& [n, value] : figures) {
    if (n == name) return value;
    names += (names.empty() ? "" : ", ") + n;
  }
  fail<ArgumentError>({.operation = "figure",
                       .with = {{"name", name}, {"figures", names.empty() ? "none" : names}},
                       .wrong = "there is no figure with this name"});
}

namespace detail {

void FigureSums::add(std::vector<Array> values, std::int64_t samples) {
  for (Array& v : values) {
    if (v.size() != 1)
      fail<ShapeError>({.operation = "evaluate",
                        .with = {{"shape", to_string(v.shape())}},
                        .wrong = "a metric must return one number per batch"});
    v = stop_gradient(v).astype(v.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  eval(values);
  waiting_.emplace_back(std::move(values), samples);
  if (waiting_.size() >= 64) collect();  // waits only for old values, so that the device always has work
}

void FigureSums::collect() {
  for (const auto& [values, samples] : waiting_) {
    const auto n = static_cast<double>(samples);
    for (std::size_t i = 0; i < values.size(); ++i)
      sums_[i] += n * (values[i].dtype() == DType::f64 ? values[i].item<double>() : values[i].item<float>());
    samples_ += n;
  }
  waiting_.clear();
}

std::vector<double> FigureSums::means(Exchange* ranks) {
  collect();
  if (ranks != nullptr) {
    sums_.push_back(samples_);
    for (double& s : sums_) {
      double sum = 0;
      for (const std::uint64_t bits : ranks->gather(std::bit_cast<std::uint64_t>(s)))
        sum += std::bit_cast<double>(bits);
      s = sum;
    }
    samples_ = sums_.back();
    sums_.pop_back();
  }
  if (samples_ == 0)
    fail<ArgumentError>({.operation = "evaluate", .wrong = "there are no samples to evaluate the model on"});
  std::vector<double> out = sums_;
  for (double& s : out) s /= samples_;
  return out;
}

void on_each_rank(Exchange* ranks, const Callback<void(std::size_t, std::size_t)>& f) {
  const auto size = static_cast<std::size_t>(ranks == nullptr ? 1 : ranks->size());
  const auto rank = static_cast<std::size_t>(ranks == nullptr ? 0 : ranks->rank());
  run_on_all(ranks, [&] { f(size, rank); });
}

Array predict_in_batches(const Array& x, std::int64_t size, const Callback<Array(const Array&)>& model) {
  if (x.rank() == 0 || x.shape(0) == 0 || size < 1)
    fail<ArgumentError>({.operation = "predict",
                         .with = {{"shape", to_string(x.shape())}, {"size", std::to_string(size)}},
                         .wrong = "x needs an axis of samples with at least one sample, and size must be at least 1"});
  const Inference mode;
  std::vector<Array> parts;
  for (std::int64_t at = 0; at < x.shape(0); at += size) {
    const std::int64_t end = std::min(x.shape(0), at + size);
    parts.push_back(model(x.slice(0, at, end)).eval());
    if (parts.back().rank() == 0 || parts.back().shape(0) != end - at)
      fail<ShapeError>({.operation = "predict",
                        .with = {{"samples", std::to_string(end - at)}, {"gave", to_string(parts.back().shape())}},
                        .wrong = "the model's result has a different number of samples than its input"});
  }
  return parts.size() == 1 ? parts[0] : concatenate(parts);
}

}  // namespace detail

}  // namespace tessera
