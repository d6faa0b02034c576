// SPDX-License-Identifier: Apache-2.0
// Evaluates metrics of a model on a data set, and computes predictions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/range.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/mode.h"

namespace tessera {

class Exchange;

/// A list of named numbers, such as validation results.
using Figures = std::vector<std::pair<std::string, double>>;
/// Returns the value of the figure `name`. Throws ArgumentError if there is no such figure.
double figure(const Figures& figures, const std::string& name);

/// A named function that computes one number from a batch. For several batches, the report contains the mean, weighted
/// by the number of samples.
template <class Model, class Batch>
struct Metric {
  std::string name;  ///< Name in reports.
  /// Computes the mean over the samples of a batch.
  Callback<Array(const Model& model, const Batch& batch)> value;
};

namespace detail {
/// Adds up metrics over batches. add() does not wait for the device: values that are not computed yet are collected
/// later.
class FigureSums {
 public:
  explicit FigureSums(std::size_t count) : sums_(count, 0.0) {}
  void add(std::vector<Array> values, std::int64_t samples);
  /// Also adds up the sums of all ranks, unless `ranks` is null.
  std::vector<double> means(Exchange* ranks);

 private:
  void collect();
  std::vector<std::pair<std::vector<Array>, std::int64_t>> waiting_;
  std::vector<double> sums_;
  double samples_ = 0;
};
Array predict_in_batches(const Array& x, std::int64_t size, const Callback<Array(const Array&)>& model);
/// Calls `f` on all ranks, or once if `ranks` is null, with the number of ranks and the number of this rank. If it
/// throws on one rank, all ranks throw.
void on_each_rank(Exchange* ranks, const Callback<void(std::size_t size, std::size_t rank)>& f);
}  // namespace detail

/// Options of evaluate().
struct EvaluateOptions {
  /// Divides the batches among the ranks: each computes every n-th one, and all return the same figures. All ranks must
  /// call evaluate() with the same data. Null: this process computes all batches.
  Exchange* ranks = nullptr;
};
/// Computes the mean of each metric over a range of batches, in inference mode: `evaluate(model, batches(x, y, {.size =
/// 500}), {{"loss", loss}, {"accuracy", right}})`. The number of samples of a batch is extent 0 of its first array.
/// Throws ShapeError if a metric returns more than one number.
template <class Model, detail::Range Data>
Figures evaluate(const Model& model, Data&& data, const std::vector<Metric<Model, detail::ElementOf<Data>>>& metrics,
                 const EvaluateOptions& options = {}) {
  const Inference mode;
  detail::FigureSums sums(metrics.size());
  detail::on_each_rank(options.ranks, [&](std::size_t size, std::size_t rank) {
    std::size_t number = 0;
    for (const auto& batch : data) {
      if (number++ % size != rank) continue;
      std::vector<Array> values;
      for (const auto& m : metrics) values.push_back(m.value(model, batch));
      std::int64_t samples = -1;
      for_each_array(batch, [&](const Array& a) {
        if (samples < 0) samples = a.rank() == 0 ? 1 : a.shape(0);
      });
      sums.add(std::move(values), samples);
    }
  });
  const std::vector<double> means = sums.means(options.ranks);
  Figures out;
  for (std::size_t i = 0; i < metrics.size(); ++i) out.emplace_back(metrics[i].name, means[i]);
  return out;
}

/// Options of predict().
struct PredictOptions {
  std::int64_t size = 256;  ///< samples per call of the model
};
/// Computes model(x) in inference mode. Splits x along axis 0 into chunks, and concatenates the results.
template <class Model>
Array predict(const Model& model, const Array& x, const PredictOptions& options = {}) {
  return detail::predict_in_batches(x, options.size, [&](const Array& part) { return model(part); });
}

}  // namespace tessera
