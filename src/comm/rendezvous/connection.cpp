#include "comm/rendezvous/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr int kLengthBytes = 4;
constexpr std::chrono::milliseconds kRetry{100};

void set(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof(value));
}

}  // namespace

std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>((number >> (8 * i)) & 0xFF));
  return text;
}

std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return number;
}

std::optional<std::string> FrameBuffer::next(std::uint64_t most) {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const std::uint64_t length = from_little_endian({bytes_.data(), kLengthBytes});
  if (length > most) {
    throw Error(Fault::kPeer, "rendezvous: a message of {} bytes, wanted at most {}", length, most);
  }
  if (bytes_.size() < kLengthBytes + length) return std::nullopt;
  std::string frame = bytes_.substr(kLengthBytes, length);
  bytes_.erase(0, kLengthBytes + length);
  return frame;
}

RankConnection::RankConnection(int descriptor) : descriptor_(descriptor) {
  if (descriptor < 0) return;
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  // A host that has lost its power closes nothing: it is noticed after 25 seconds.
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

RankConnection::RankConnection(RankConnection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

RankConnection& RankConnection::operator=(RankConnection&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

RankConnection::~RankConnection() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool RankConnection::send(std::string_view frame) const {
  std::string all = little_endian(frame.size(), kLengthBytes);
  all += frame;
  for (std::size_t sent = 0; sent < all.size();) {
    const ssize_t count = ::send(descriptor_, all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

bool RankConnection::receive(FrameBuffer& buffer) const {
  std::array<char, 65536> bytes;
  for (;;) {
    const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    buffer.add({bytes.data(), static_cast<std::size_t>(count)});
    return true;
  }
}

void RankConnection::shut() const { ::shutdown(descriptor_, SHUT_RDWR); }

std::string RankConnection::local_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* const general = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(descriptor_, general, &length) != 0 ||
      ::getnameinfo(general, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text.data();
}

RankListener::RankListener(int port, ReachedFrom from) {
  const bool here = from == ReachedFrom::kThisHost;
  // Of both families; a host without IPv6 has the other one.
  if (!here) descriptor_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool both = descriptor_ >= 0;
  if (!both) descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  set(descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  if (here) four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (both) set(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* address =
      both ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  socklen_t length = both ? sizeof(six) : sizeof(four);
  if (::bind(descriptor_, address, length) != 0 || ::listen(descriptor_, 1024) != 0) {
    const std::string why = system_message(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw Error(Fault::kUsage,
                "rendezvous: port {} of this host: {}; choose another one with MASTER_PORT, or "
                "PITON_PORT under torchrun",
                port, why);
  }
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&six), &length);
  port_ = ntohs(six.sin6_port);  // at the same place in both structs
}

RankListener::~RankListener() { ::close(descriptor_); }

RankConnection RankListener::accept() const {
  return RankConnection(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
}

RankConnection try_to_connect(const std::string& host, int port, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &all);
  if (code != 0 && code != EAI_AGAIN) {
    throw Error(Fault::kUsage, "rendezvous: MASTER_ADDR={}: {}; wanted the host of rank 0", host,
                ::gai_strerror(code));
  }
  int connected = -1;
  for (const addrinfo* one = all; one != nullptr && connected < 0; one = one->ai_next) {
    const int descriptor = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    const timeval limit{.tv_sec = 10, .tv_usec = 0};  // of connect(), too
    ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (::connect(descriptor, one->ai_addr, one->ai_addrlen) == 0) {
      connected = descriptor;
    } else {
      why = system_message(errno);
      ::close(descriptor);
    }
  }
  if (all != nullptr) ::freeaddrinfo(all);
  return RankConnection(connected);
}

RankConnection connect_to(const std::string& host, int port, ConnectDeadline deadline) {
  std::string why = "no answer";
  for (;;) {
    if (RankConnection connection = try_to_connect(host, port, why); connection.open()) {
      return connection;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(Fault::kPeer,
                  "rendezvous: rank 0 does not answer at {} port {}: {}; has it started, and are "
                  "MASTER_ADDR and MASTER_PORT the same on all ranks?",
                  host, port, why);
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace piton
