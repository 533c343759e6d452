#include "data/samples/mock_corpus.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::size_t kSequences = 100'000;
constexpr std::uint32_t kLongest = 4095;

// NumPy's Generator(PCG64(0)): the 128-bit PCG XSL RR (M. O'Neill, "PCG: a family of simple fast
// space-efficient statistically good algorithms for random number generation", 2014), seeded by
// SeedSequence, whose pool of four words is mixed from the single word 0.
class Pcg64 {
 public:
  Pcg64() {
    std::array<std::uint32_t, 4> pool{};
    std::uint32_t constant = 0x43b0d7e5;
    const auto hashed = [&](std::uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ (value >> 16);
    };
    for (std::uint32_t& word : pool) word = hashed(0);
    for (std::size_t from = 0; from < pool.size(); ++from) {
      for (std::size_t to = 0; to < pool.size(); ++to) {
        if (from == to) continue;
        const std::uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from]);
        pool[to] = mixed ^ (mixed >> 16);
      }
    }
    constant = 0x8b51f9dd;
    std::array<Word, 4> words{};  // 64 bits each, the low half first
    for (std::size_t i = 0; i < 2 * words.size(); ++i) {
      std::uint32_t value = pool[i % pool.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      words[i / 2] |= Word{value} << (32 * (i % 2));
    }
    increment_ = (words[2] << 64 | words[3]) << 1 | 1;
    step();
    state_ += words[0] << 64 | words[1];
    step();
  }

  // Uniform in 0..n - 1 by D. Lemire's multiplication ("Fast random integer generation in an
  // interval", 2019), 32 bits per draw.
  std::uint32_t below(std::uint32_t n) {
    const std::uint32_t unfair = (0U - n) % n;
    while (true) {
      const std::uint64_t product = std::uint64_t{next32()} * n;
      if (static_cast<std::uint32_t>(product) >= unfair) {
        return static_cast<std::uint32_t>(product >> 32);
      }
    }
  }

 private:
  using Word = unsigned __int128;

  void step() {
    constexpr Word kMultiplier = Word{0x2360ed051fc65da4} << 64 | 0x4385df649fccf645;
    state_ = state_ * kMultiplier + increment_;
  }

  // The low half of 64 bits, then the high half.
  std::uint32_t next32() {
    if (has_high_) {
      has_high_ = false;
      return high_;
    }
    step();
    const auto folded =
        static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    const std::uint64_t bits = folded >> turn | folded << ((64 - turn) % 64);
    has_high_ = true;
    high_ = static_cast<std::uint32_t>(bits >> 32);
    return static_cast<std::uint32_t>(bits);
  }

  Word state_ = 0;
  Word increment_ = 0;
  bool has_high_ = false;
  std::uint32_t high_ = 0;
};

}  // namespace

MockCorpus::MockCorpus(std::int64_t vocabulary, std::int32_t end_of_document)
    : vocabulary_(vocabulary), end_of_document_(end_of_document), lengths_(kSequences) {
  PITON_ASSERT(end_of_document >= 0 && end_of_document < vocabulary, "end {} of {} ids",
               end_of_document, vocabulary);
  Pcg64 random;
  for (std::int32_t& length : lengths_) {
    length = 1 + static_cast<std::int32_t>(random.below(kLongest));
  }
}

std::vector<std::int32_t> MockCorpus::lengths(std::int64_t first, std::int64_t count) const {
  const auto begin = lengths_.begin() + first;
  return {begin, begin + count};
}

std::int64_t MockCorpus::read_some(std::int64_t sequence, std::int64_t first,
                                   std::span<std::int32_t> out) const {
  const std::int64_t length = lengths_[static_cast<std::size_t>(sequence)];
  if (first < 0 || first > length) return -1;
  const std::int64_t count = std::min(length - first, static_cast<std::int64_t>(out.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_last = first + i + 1 == length;
    out[static_cast<std::size_t>(i)] =
        is_last ? end_of_document_ : static_cast<std::int32_t>((first + i + 1) % vocabulary_);
  }
  return count;
}

// There is nothing to fetch.
std::int64_t MockCorpus::announce(std::int64_t sequence, std::int64_t first,
                                  std::int64_t count) const {
  const std::int64_t length = lengths_[static_cast<std::size_t>(sequence)];
  return first < 0 || first > length ? -1 : std::min(length - first, count);
}

std::string MockCorpus::fingerprint() const {
  const std::array<std::int64_t, 2> facts{vocabulary_, end_of_document_};
  StreamHash hash;
  hash.add(std::as_bytes(std::span(name_)));
  hash.add(std::as_bytes(std::span(facts)));
  return hash.hex();
}

}  // namespace piton
