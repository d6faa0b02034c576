// SPDX-License-Identifier: Apache-2.0
// mistake 1: an array of a model must be a Parameter (trained) or a StateArray (not trained), not a plain Array
// mistake 1: {"value.layers.*.scale"}
// mistake 2: must be a Parameter (trained) or a StateArray
// mistake 3: must be a Parameter (trained) or a StateArray
// mistake 4: this type cannot be traversed
// mistake 5: a layer takes a different number of inputs than the previous layers produce
// mistake 5: LayersDoNotFit<3, 128, 64>
// mistake 6: a batch must consist of arrays: a replayed step would see a number as it was
// mistake 6: {"value.weights.*.factor"}
#include <functional>

#include "tessera/nn/mode.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/sequential.h"
#include "tessera/nn/trainer.h"
using namespace tessera;

struct Scaled {
  Dense dense;
  Array scale;
};
struct Plain {
  std::vector<Scaled> layers;
};
struct Unknown {
  Dense dense;
  std::function<void()> f;
};
struct Fine {
  std::vector<Dense> layers;
  StateArray scale;
};

struct Weighed {
  Array x;
  double factor;
};
struct Numbers {
  std::vector<Weighed> weights;
};
struct Tag {};
struct Arrays {
  Array x;
  std::vector<std::optional<Array>> more;
  Tag tag;
};

void use(Plain& plain, Unknown& unknown, Fine& fine) {
#if MISTAKE == 1
  parameters(plain);
#elif MISTAKE == 2
  Adam optimiser(plain);
#elif MISTAKE == 3
  setup(plain);
#elif MISTAKE == 4
  parameters(unknown);
#elif MISTAKE == 5
  sequential(dense<784, 128>, relu, Dropout{}, dense<64, 10>);
#elif MISTAKE == 6
  Trainer<Fine, Numbers> trainer(fine, Adam(fine), [](const Fine&, const Numbers& b) { return b.weights[0].x; });
#else
  Trainer<Fine, Arrays> trainer(fine, Adam(fine), [](const Fine&, const Arrays& b) { return b.x; });
  parameters(fine), summary(fine), freeze(fine), clone(plain);
  Adam optimiser(fine);
  optimiser.step(fine, fine);
  Training().apply(fine);
  const Sequential<Dense, Elementwise, Flatten, Dense> model =
      sequential(dense<784, 128>, relu, Flatten{}, dense<64, 10>);  // the output size of Flatten is unknown
#endif
  (void)plain, (void)unknown, (void)fine;
}
