#include "base/random/philox.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/random/normal_math.h"

namespace piton {
namespace {

void normal_pair(std::uint32_t radius_word, std::uint32_t angle_word, double* pair) {
  const double radius = radius_of(uniform_of(radius_word));
  const auto [sine, cosine] = sine_and_cosine_of_turns(uniform_of(angle_word));
  pair[0] = radius * cosine;
  pair[1] = radius * sine;
}

PhiloxBlock weight_block(PhiloxKey key, std::uint64_t block) {
  return philox(key,
                {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1});
}

}  // namespace

PhiloxKey site_key(std::uint64_t seed, std::string_view site) {
  const std::uint64_t hash = hash64(site, seed);
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

double philox_normal(PhiloxKey key, std::uint64_t index) {
  const PhiloxBlock words = weight_block(key, index / 4);
  const std::size_t first = index % 4 < 2 ? 0 : 2;
  double pair[2];
  normal_pair(words[first], words[first + 1], pair);
  return pair[index % 2];
}

std::array<double, 4> philox_normal4(PhiloxKey key, std::uint64_t block) {
  const PhiloxBlock words = weight_block(key, block);
  std::array<double, 4> normals;
  normal_pair(words[0], words[1], normals.data());
  normal_pair(words[2], words[3], normals.data() + 2);
  return normals;
}

}  // namespace piton
