// What ranks and the server of a rendezvous write to each other. Internal to this folder.
//
// The first byte of a frame is its kind. Texts have a length before them, if something follows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

enum class MessageKind : char {
  kHello = 'H',     // rank -> server: protocol, rank, size
  kAccepted = 'A',  // server -> rank: it is one of this run's; others may be missing
  kWelcome = 'W',   // server -> rank: all ranks are there
  kRefused = 'R',   // server -> rank: text
  kPart = 'P',      // rank -> server: key, number of ranks, the ranks, bytes
  kGathered = 'G',  // server -> rank: key, number of ranks, the bytes of each
  kFailed = 'F',    // rank -> server: code, text; server -> rank: text
  kGoodbye = 'B',   // rank -> server: it leaves, and is not lost
};

inline constexpr std::uint64_t kProtocol = 0x50495431;               // "PIT1"
inline constexpr std::uint64_t kMostOfHello = 64;                    // bytes
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 31;  // of one message

// Writes a message.
class MessageWriter {
 public:
  explicit MessageWriter(MessageKind kind) : bytes_(1, static_cast<char>(kind)) {}
  MessageWriter& number(std::uint64_t value);
  MessageWriter& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads it. Throws Error(kPeer) if it is too short.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}
  MessageKind kind();
  std::uint64_t number();
  std::string text();

 private:
  std::string_view take(std::uint64_t bytes);
  std::string_view rest_;
};

}  // namespace piton
