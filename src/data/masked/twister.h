// The generators of std::mt19937 and std::mt19937_64 (Matsumoto & Nishimura 1998, Nishimura 2000),
// whose numbers come a whole state at a time: loops of many equal steps, of which vector code is
// made. The numbers are the same.
#pragma once

#include <array>
#include <cstdint>
#include <random>

namespace piton {

// `Word`: unsigned, of as many bits as Engine has.
template <typename Word, typename Engine>
class Twister {
 public:
  static constexpr std::size_t kWords = Engine::state_size;

  explicit Twister(Word seed) {
    state_[0] = seed;
    for (std::size_t i = 1; i < kWords; ++i) {
      const Word before = state_[i - 1] ^ (state_[i - 1] >> (Engine::word_size - 2));
      state_[i] =
          static_cast<Word>(Engine::initialization_multiplier) * before + static_cast<Word>(i);
    }
  }

  // The next kWords numbers.
  const std::array<Word, kWords>& next() {
    constexpr std::size_t kShift = Engine::shift_size;
    for (std::size_t i = 0; i < kWords - kShift; ++i)
      state_[i] = state_[i + kShift] ^ twisted(state_[i], state_[i + 1]);
    for (std::size_t i = kWords - kShift; i < kWords - 1; ++i)
      state_[i] = state_[i + kShift - kWords] ^ twisted(state_[i], state_[i + 1]);
    state_[kWords - 1] = state_[kShift - 1] ^ twisted(state_[kWords - 1], state_[0]);
    for (std::size_t i = 0; i < kWords; ++i) numbers_[i] = tempered(state_[i]);
    return numbers_;
  }

 private:
  static Word twisted(Word high, Word low) {
    constexpr Word kLow = (Word{1} << Engine::mask_bits) - 1;
    const Word mixed = static_cast<Word>((high & ~kLow) | (low & kLow));
    const auto odd = static_cast<Word>(Word{0} - (mixed & 1));
    return (mixed >> 1) ^ (odd & static_cast<Word>(Engine::xor_mask));
  }
  static Word tempered(Word word) {
    word ^= (word >> Engine::tempering_u) & static_cast<Word>(Engine::tempering_d);
    word ^= (word << Engine::tempering_s) & static_cast<Word>(Engine::tempering_b);
    word ^= (word << Engine::tempering_t) & static_cast<Word>(Engine::tempering_c);
    return word ^ (word >> Engine::tempering_l);
  }

  std::array<Word, kWords> state_;
  std::array<Word, kWords> numbers_;
};

using Twister32 = Twister<std::uint32_t, std::mt19937>;
using Twister64 = Twister<std::uint64_t, std::mt19937_64>;

}  // namespace piton
