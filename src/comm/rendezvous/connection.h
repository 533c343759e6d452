// TCP connections that carry frames: four bytes of length (little-endian), then the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piton {

// A number with `bytes` bytes, the lowest one first.
std::string little_endian(std::uint64_t number, int bytes);
std::uint64_t from_little_endian(std::string_view bytes);

// Cuts received bytes into frames.
class FrameBuffer {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next whole frame; nullopt: it has not arrived. Throws Error(kPeer) if it is longer than
  // `most` bytes.
  std::optional<std::string> next(std::uint64_t most);

 private:
  std::string bytes_;
};

// The socket of one connection. Closes it at the end.
class RankConnection {
 public:
  RankConnection() = default;
  explicit RankConnection(int descriptor);
  RankConnection(RankConnection&& other) noexcept;
  RankConnection& operator=(RankConnection&& other) noexcept;
  ~RankConnection();

  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // Blocks until the system has the bytes; false if the connection is lost. A peer that reads
  // nothing for ten seconds is lost.
  bool send(std::string_view frame) const;
  // Blocks until bytes arrive and adds them to `buffer`; false if the connection is closed.
  bool receive(FrameBuffer& buffer) const;
  // Ends receive() in other threads.
  void shut() const;
  // The address of this end, in numbers; "" if it is unknown.
  std::string local_address() const;

 private:
  int descriptor_ = -1;
};

// Where a listener can be reached from.
enum class ReachedFrom : std::uint8_t { kAnywhere, kThisHost };  // the latter at kThisHostAddress
inline constexpr const char* kThisHostAddress = "127.0.0.1";

// A listening socket.
class RankListener {
 public:
  // Port 0: the system chooses one. Throws Error(kUsage) if the port is in use or not allowed.
  explicit RankListener(int port, ReachedFrom from = ReachedFrom::kAnywhere);
  RankListener(const RankListener&) = delete;
  RankListener& operator=(const RankListener&) = delete;
  ~RankListener();

  int descriptor() const { return descriptor_; }
  int port() const { return port_; }
  RankConnection accept() const;  // not open if the peer has left again

 private:
  int descriptor_ = -1;
  int port_ = 0;
};

using ConnectDeadline = std::chrono::steady_clock::time_point;

// Connects to `port` of `host` (a name or an address), once. Not open if nobody answers, for the
// reason `why`. Throws Error(kUsage) for a name that does not exist.
RankConnection try_to_connect(const std::string& host, int port, std::string& why);

// Connects to `port` of `host` (a name or an address), again and again until `deadline`. Throws
// Error(kUsage) for a name that does not exist, and Error(kPeer) if nobody answers.
RankConnection connect_to(const std::string& host, int port, ConnectDeadline deadline);

}  // namespace piton
