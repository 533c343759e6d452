// The order of samples from several data sets, as Hugging Face's interleave_datasets gives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piton {

enum class MixStrategy : std::uint8_t {
  kConcat,  // one set after another
  kUnder,   // ends when the first set is exhausted
  kOver,    // ends when every set was exhausted; those that end earlier start again
};

struct MixRules {
  MixStrategy strategy = MixStrategy::kConcat;
  std::vector<double> probabilities;  // of each set; empty: the sets take turns
  std::uint64_t seed = 1234;
};

// Probabilities of text "0.3, 0.7". Throws Error(kUsage) if their number is not `sets`, or if they
// do not sum to 1; and under kOver, which waits for every set, if one is hardly ever drawn.
std::vector<double> mix_probabilities(const std::string& text, std::size_t sets,
                                      MixStrategy strategy);

// Indexes into the concatenation of the sets, which have `sizes` samples each, all above 0.
std::vector<std::int64_t> mixed_order(const std::vector<std::int64_t>& sizes,
                                      const MixRules& rules);

// Random numbers of numpy.random.default_rng(seed): PCG64 (O'Neill 2014, "PCG: A Family of Simple
// Fast Space-Efficient Statistically Good Algorithms", XSL-RR 128/64), seeded by SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint64_t seed);
  // In [0, 1), as Generator.random().
  double uniform();

 private:
  struct Wide {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
  };
  static Wide sum(Wide a, Wide b);
  static Wide product(Wide a, Wide b);
  void step();

  Wide state_;
  Wide increment_;
};

}  // namespace piton
