// Hashes of bytes (xxHash, XXH3). The values are part of file formats and of random-number keys:
// they never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace piton {

// XXH3-64 with `seed`.
std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0);

// XXH3-128 of a stream of bytes, as 32 lowercase hex digits.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
