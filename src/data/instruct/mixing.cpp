#include "data/instruct/mixing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace piton {
namespace {

// Of a set that is drawn until it is exhausted.
constexpr double kLeastProbability = 1e-4;

// numpy.random.SeedSequence (after O'Neill's seed_seq_fe): mixes the words of a seed into a pool of
// four, and draws words from it.
class SeedWords {
 public:
  explicit SeedWords(std::uint64_t seed) {
    const std::array<std::uint32_t, 2> entropy = {static_cast<std::uint32_t>(seed),
                                                  static_cast<std::uint32_t>(seed >> 32)};
    const std::size_t used = entropy[1] != 0 ? 2 : 1;
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < used ? entropy[i] : 0);
    for (std::size_t from = 0; from < pool_.size(); ++from) {
      for (std::size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
      }
    }
  }

  std::uint64_t next64() {
    const std::uint64_t low = next32();
    return low | static_cast<std::uint64_t>(next32()) << 32;
  }

 private:
  std::uint32_t hash(std::uint32_t value) {
    value ^= hash_;
    hash_ *= 0x931e8875U;
    value *= hash_;
    return value ^ value >> 16;
  }
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t result = 0xca01f9ddU * x - 0x4973f715U * y;
    return result ^ result >> 16;
  }
  std::uint32_t next32() {
    std::uint32_t value = pool_[drawn_++ % pool_.size()] ^ draw_;
    draw_ *= 0x58f38dedU;
    value *= draw_;
    return value ^ value >> 16;
  }

  std::array<std::uint32_t, 4> pool_{};
  std::uint32_t hash_ = 0x43b0d7e5U;
  std::uint32_t draw_ = 0x8b51f9ddU;
  std::size_t drawn_ = 0;
};

}  // namespace

NumpyGenerator::Wide NumpyGenerator::sum(Wide a, Wide b) {
  const std::uint64_t low = a.low + b.low;
  return {a.high + b.high + (low < a.low ? 1 : 0), low};
}

NumpyGenerator::Wide NumpyGenerator::product(Wide a, Wide b) {
  const std::uint64_t al = a.low & 0xFFFFFFFFU, ah = a.low >> 32;
  const std::uint64_t bl = b.low & 0xFFFFFFFFU, bh = b.low >> 32;
  const std::uint64_t middle = ah * bl + (al * bl >> 32);
  const std::uint64_t other = al * bh + (middle & 0xFFFFFFFFU);
  return {a.high * b.low + a.low * b.high + ah * bh + (middle >> 32) + (other >> 32),
          a.low * b.low};
}

NumpyGenerator::NumpyGenerator(std::uint64_t seed) {
  SeedWords words(seed);
  Wide start, stream;
  start.high = words.next64();
  start.low = words.next64();
  stream.high = words.next64();
  stream.low = words.next64();
  increment_ = {stream.high << 1 | stream.low >> 63, stream.low << 1 | 1};
  step();
  state_ = sum(state_, start);
  step();
}

void NumpyGenerator::step() {
  state_ = sum(product(state_, {0x2360ED051FC65DA4U, 0x4385DF649FCCF645U}), increment_);
}

double NumpyGenerator::uniform() {
  step();
  const std::uint64_t bits =
      std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::vector<double> mix_probabilities(const std::string& text, std::size_t sets,
                                      MixStrategy strategy) {
  std::vector<double> values;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    values.push_back(std::strtod(at, &end));
    while (*end == ' ') ++end;
    if (end == at || (*end != ',' && *end != '\0') || !(values.back() >= 0 && values.back() <= 1)) {
      throw Error(Fault::kUsage,
                  "--interleave-probs: got \"{}\", wanted numbers from 0 to 1, with "
                  "commas between them: 0.3,0.7",
                  text);
    }
    at = *end == ',' ? end + 1 : end;
  }
  double total = 0;
  for (const double value : values) total += value;
  if (values.size() != sets || std::abs(total - 1) > 1e-8) {
    throw Error(Fault::kUsage,
                "--interleave-probs: got {} numbers with the sum {}, wanted one for each "
                "of {} data sets (--input, --datasets) with the sum 1",
                values.size(), total, sets);
  }
  const auto least = std::min_element(values.begin(), values.end());
  if (strategy == MixStrategy::kOver && *least < kLeastProbability) {
    throw Error(Fault::kUsage,
                "--interleave-probs: got {} for data set {}, which interleave_over would draw for "
                "ever; wanted {} or more, or --mix-strategy interleave_under",
                *least, least - values.begin() + 1, kLeastProbability);
  }
  return values;
}

std::vector<std::int64_t> mixed_order(const std::vector<std::int64_t>& sizes,
                                      const MixRules& rules) {
  std::vector<std::int64_t> offsets(sizes.size());
  for (std::size_t i = 1; i < sizes.size(); ++i) offsets[i] = offsets[i - 1] + sizes[i - 1];
  std::vector<std::int64_t> order;
  if (rules.strategy == MixStrategy::kConcat) {
    order.resize(static_cast<std::size_t>(offsets.back() + sizes.back()));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    return order;
  }
  const bool over = rules.strategy == MixStrategy::kOver;
  if (rules.probabilities.empty()) {
    const std::int64_t rounds = over ? *std::max_element(sizes.begin(), sizes.end())
                                     : *std::min_element(sizes.begin(), sizes.end());
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < sizes.size(); ++i) order.push_back(offsets[i] + round % sizes[i]);
    }
    return order;
  }
  // As Generator.choice(): a uniform number is searched in the sums of probabilities.
  std::vector<double> sums;
  for (const double one : rules.probabilities) {
    sums.push_back(one + (sums.empty() ? 0 : sums.back()));
  }
  for (double& one : sums) one /= sums.back();
  NumpyGenerator generator(rules.seed);
  std::vector<std::int64_t> next(sizes.size());
  std::vector<bool> exhausted(sizes.size());
  while (true) {
    const auto full = std::count(exhausted.begin(), exhausted.end(), true);
    if (over ? full == std::ssize(sizes) : full > 0) return order;
    const auto set = static_cast<std::size_t>(
        std::upper_bound(sums.begin(), sums.end(), generator.uniform()) - sums.begin());
    order.push_back(offsets[set] + next[set]);
    if (++next[set] == sizes[set]) {
      exhausted[set] = true;
      next[set] = 0;
    }
  }
}

}  // namespace piton
