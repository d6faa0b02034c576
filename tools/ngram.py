# SPDX-License-Identifier: Apache-2.0
"""The yardstick of the language model: a 3-gram model with interpolated modified Kneser-Ney smoothing."""
from __future__ import annotations

import collections
import math


class _Level:
    """One order of the model: for each context the counts of what follows, and the discounts of this order."""

    def __init__(self, grams: collections.Counter) -> None:
        of = collections.Counter(grams.values())  # how many grams occur once, twice, ...
        self.discount = [0.0, 0.75, 0.75, 0.75]  # where the counts of counts are too few to say better
        if all(of[k] >= 10 for k in (1, 2, 3, 4)):
            y = of[1] / (of[1] + 2 * of[2])
            self.discount = [0.0] + [min(max(k - (k + 1) * y * of[k + 1] / of[k], 0.1), k) for k in (1, 2, 3)]
        self.grams = grams
        self.total: collections.Counter = collections.Counter()
        self.removed: dict[tuple, float] = collections.defaultdict(float)
        for gram, n in grams.items():
            self.total[gram[:-1]] += n
            self.removed[gram[:-1]] += self.discount[min(n, 3)]

    def probability(self, gram: tuple, lower: float) -> float:
        """P(last | rest), where `lower` is what the next shorter context says."""
        total = self.total[gram[:-1]]
        if not total:
            return lower
        n = self.grams[gram]
        kept = n - self.discount[min(n, 3)] if n else 0.0
        return (kept + self.removed[gram[:-1]] * lower) / total


class TrigramModel:
    """Modified Kneser-Ney (Chen and Goodman 1998): the two lower orders count in how many contexts a token occurs."""

    def __init__(self, tokens: list[int], vocabulary: int) -> None:
        self.vocabulary = vocabulary
        trigrams = collections.Counter(zip(tokens, tokens[1:], tokens[2:]))
        bigrams = collections.Counter(g[1:] for g in trigrams)
        unigrams = collections.Counter(g[1:] for g in bigrams)
        self.levels = [_Level(unigrams), _Level(bigrams), _Level(trigrams)]

    def loss(self, tokens: list[int]) -> float:
        """The sum of -ln P over all tokens but the first, each given the (at most two) tokens before it."""
        nats = 0.0
        for i in range(1, len(tokens)):
            p = 1.0 / self.vocabulary
            for order, level in enumerate(self.levels):
                if order <= i:
                    p = level.probability(tuple(tokens[i - order:i + 1]), p)
            nats -= math.log(p)
        return nats
