#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

#include "base/error.h"

namespace piton {

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct StreamHash::State {
  XXH3_state_t* value = XXH3_createState();
  State() {
    if (value == nullptr) throw std::bad_alloc();
    PITON_ASSERT(XXH3_128bits_reset(value) == XXH_OK);
  }
  ~State() { XXH3_freeState(value); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {}
StreamHash::~StreamHash() = default;
StreamHash::StreamHash(StreamHash&&) noexcept = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;

void StreamHash::add(std::span<const std::byte> bytes) {
  PITON_ASSERT(XXH3_128bits_update(state_->value, bytes.data(), bytes.size()) == XXH_OK);
}

std::string StreamHash::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->value);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace piton
