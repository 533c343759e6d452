#include "comm/sockets/messages_over_tcp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace piton {

namespace {

constexpr std::uint64_t kGreetingProtocol = 0x31504354504950;  // "PIPTCP1"
// Bytes of a connection in one turn, before the others get theirs.
constexpr std::int64_t kTurnBytes = 4 << 20;
constexpr std::chrono::seconds kConnecting{30};
constexpr std::chrono::milliseconds kNextTry{50};
// A rank that ends because of another one's failure closes its connections too: the rendezvous is
// given this time to say which one was the first.
constexpr double kLostSeconds = 1;

std::uint64_t random_token() {
  std::uint64_t token = 0;
  if (::getrandom(&token, sizeof token, 0) != sizeof token) {
    throw Error(Fault::kMemory, "comm: no random number: {}", system_message(errno));
  }
  return token;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

class MessagesOverTcp::OpenTransfer final : public Transfer {
 public:
  explicit OpenTransfer(std::shared_ptr<Moving> moving) : moving_(std::move(moving)) {}
  bool done() override { return moving_->done; }

 private:
  std::shared_ptr<Moving> moving_;
};

MessagesOverTcp::MessagesOverTcp(int rank, ReachedFrom from)
    : rank_(rank), token_(random_token()), listener_(0, from) {
  const int listens = listener_.descriptor();
  ::fcntl(listens, F_SETFL, ::fcntl(listens, F_GETFL) | O_NONBLOCK);
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (events_ < 0 || ::epoll_ctl(events_, EPOLL_CTL_ADD, listens, &event) != 0) {
    throw Error(Fault::kMemory, "comm: no connections to other hosts: {}; see ulimit -n",
                system_message(errno));
  }
}

MessagesOverTcp::~MessagesOverTcp() {
  if (events_ >= 0) ::close(events_);
}

std::unique_ptr<Transfer> MessagesOverTcp::send(const Label& label, const std::byte* data,
                                                std::int64_t bytes) {
  auto moving = std::make_shared<Moving>();
  moving->data = const_cast<std::byte*>(data);  // only read
  moving->bytes = bytes;
  if (dropped_) return std::make_unique<OpenTransfer>(std::move(moving));
  Outgoing& outgoing = outgoing_[label.other];
  if (!outgoing.connection.open()) connect(outgoing, label.other);
  outgoing.queue.push_back(
      {.header = {.channel = label.channel, .tag = label.tag, .bytes = bytes}, .moving = moving});
  ++open_;
  return std::make_unique<OpenTransfer>(std::move(moving));
}

std::unique_ptr<Transfer> MessagesOverTcp::receive(const Label& label, std::byte* data,
                                                   std::int64_t bytes) {
  auto moving = std::make_shared<Moving>();
  moving->data = data;
  moving->bytes = bytes;
  auto transfer = std::make_unique<OpenTransfer>(moving);
  if (dropped_) return transfer;
  ++open_;
  if (const auto kept = kept_.find(key(label)); kept != kept_.end()) {
    const Buffer& message = kept->second.front();
    expect_bytes(label, message.bytes, bytes);
    if (bytes > 0) std::memcpy(data, message.data.get(), static_cast<std::size_t>(bytes));
    kept->second.pop_front();
    if (kept->second.empty()) kept_.erase(kept);
    finish(*moving);
    return transfer;
  }
  // A message that is arriving into a buffer: the rest goes to its receive.
  for (const auto& incoming : incoming_) {
    if (incoming->rank != label.other || incoming->target || incoming->lost ||
        incoming->head_bytes < std::ssize(incoming->head)) {
      continue;
    }
    const Header header = incoming->header();
    if (header.channel != label.channel || header.tag != label.tag) continue;
    expect_bytes(label, header.bytes, bytes);
    if (incoming->taken > 0) {
      std::memcpy(data, incoming->buffer.data.get(), static_cast<std::size_t>(incoming->taken));
    }
    incoming->buffer = {};
    incoming->target = std::move(moving);
    return transfer;
  }
  asked_[key(label)].push_back(std::move(moving));
  return transfer;
}

bool MessagesOverTcp::progress() {
  if (open_ == 0 || dropped_) return false;
  bool moved = false;
  for (auto& [other, outgoing] : outgoing_) moved |= write(other, outgoing);
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(events_, ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    if (ready[static_cast<std::size_t>(i)].data.ptr == nullptr) {
      accept_all();
      moved = true;
    } else {
      moved |= read(*static_cast<Incoming*>(ready[static_cast<std::size_t>(i)].data.ptr));
    }
  }
  std::erase_if(incoming_, [](const auto& one) { return one->lost; });
  return moved;
}

void MessagesOverTcp::drop() {
  dropped_ = true;
  outgoing_.clear();
  incoming_.clear();
  asked_.clear();
  kept_.clear();
}

std::optional<std::string> MessagesOverTcp::failure() const {
  const std::lock_guard lock(mutex_);
  if (!lost_) return std::nullopt;
  const std::chrono::duration<double> since = Clock::now() - lost_->since;
  if (since.count() < kLostSeconds) return std::nullopt;
  return fmt::format("rank {} is lost: its connection to rank {} has ended", lost_->rank, rank_);
}

void MessagesOverTcp::connect(Outgoing& outgoing, int other) const {
  const RankAddress& address = addresses_[static_cast<std::size_t>(other)];
  const auto end = Clock::now() + kConnecting;
  std::string why = "no answer";
  for (;;) {
    outgoing.connection = try_to_connect(address.host, address.port, why);
    if (outgoing.connection.open()) break;
    if (Clock::now() > end) {
      throw Error(
          Fault::kPeer,
          "comm: rank {} does not answer at {} port {}: {}; can hosts of the run reach each "
          "other at all ports?",
          other, address.host, address.port, why);
    }
    std::this_thread::sleep_for(kNextTry);
  }
  const Greeting greeting{.protocol = kGreetingProtocol, .token = address.token, .rank = rank_};
  // Fits into the buffer of a new connection.
  if (::send(outgoing.connection.descriptor(), &greeting, sizeof greeting, MSG_NOSIGNAL) !=
      sizeof greeting) {
    throw Error(Fault::kPeer, "comm: rank {} has ended its connection: {}", other,
                system_message(errno));
  }
}

bool MessagesOverTcp::write(int other, Outgoing& outgoing) {
  bool moved = false;
  std::int64_t left_of_turn = kTurnBytes;
  while (!outgoing.queue.empty() && outgoing.connection.open() && left_of_turn > 0) {
    Sending& sending = outgoing.queue.front();
    constexpr auto kHead = static_cast<std::int64_t>(sizeof(Header));
    const std::int64_t of_head = std::max<std::int64_t>(0, kHead - sending.written);
    const std::int64_t at = std::max<std::int64_t>(0, sending.written - kHead);
    std::array<iovec, 2> parts{};
    parts[0] = {reinterpret_cast<std::byte*>(&sending.header) + (kHead - of_head),
                static_cast<std::size_t>(of_head)};
    parts[1] = {sending.moving->data + at, static_cast<std::size_t>(sending.moving->bytes - at)};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count =
        ::sendmsg(outgoing.connection.descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && would_block()) break;
    if (count < 0) {
      outgoing.connection = RankConnection();
      lose(other);
      break;
    }
    moved = true;
    left_of_turn -= count;
    sending.written += count;
    if (sending.written < kHead + sending.moving->bytes) continue;
    finish(*sending.moving);
    outgoing.queue.pop_front();
  }
  return moved;
}

void MessagesOverTcp::accept_all() {
  for (;;) {
    auto incoming = std::make_unique<Incoming>();
    incoming->connection = listener_.accept();
    if (!incoming->connection.open()) return;
    epoll_event event{.events = EPOLLIN, .data = {.ptr = incoming.get()}};
    if (::epoll_ctl(events_, EPOLL_CTL_ADD, incoming->connection.descriptor(), &event) == 0) {
      incoming_.push_back(std::move(incoming));
    }
  }
}

MessagesOverTcp::Read MessagesOverTcp::read_bytes(Incoming& incoming, std::byte* to,
                                                  std::int64_t bytes, std::int64_t& count) {
  for (;;) {
    const ssize_t got =
        ::recv(incoming.connection.descriptor(), to, static_cast<std::size_t>(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block()) return Read::kNothing;
    if (got <= 0) return Read::kEnd;
    count += got;
    return Read::kSome;
  }
}

bool MessagesOverTcp::read(Incoming& incoming) {
  bool moved = false;
  std::int64_t left_of_turn = kTurnBytes;
  while (left_of_turn > 0) {
    std::int64_t count = 0;
    Read result = Read::kSome;
    constexpr auto kHead = static_cast<std::int64_t>(sizeof(Header));
    if (incoming.head_bytes < kHead) {
      result = read_bytes(incoming, incoming.head + incoming.head_bytes,
                          kHead - incoming.head_bytes, count);
      incoming.head_bytes += count;
    } else {
      std::byte* const to = incoming.target ? incoming.target->data : incoming.buffer.data.get();
      result = read_bytes(incoming, to + incoming.taken, incoming.header().bytes - incoming.taken,
                          count);
      incoming.taken += count;
    }
    if (result == Read::kNothing) break;
    if (result == Read::kEnd) {
      incoming.lost = true;
      if (incoming.rank >= 0) lose(incoming.rank);
      break;
    }
    moved = true;
    left_of_turn -= count;
    if (incoming.head_bytes < kHead) continue;
    if (incoming.rank < 0) {
      if (!take_head(incoming)) break;
      continue;
    }
    if (incoming.taken == 0 && !incoming.target) start_message(incoming);
    if (incoming.taken == incoming.header().bytes) end_message(incoming);
  }
  return moved;
}

// Others than ranks may find the port: whatever they send, they are only closed.
bool MessagesOverTcp::take_head(Incoming& incoming) {
  Greeting greeting{};
  std::memcpy(&greeting, incoming.head, sizeof greeting);
  if (greeting.protocol != kGreetingProtocol || greeting.token != token_ || greeting.rank < 0 ||
      greeting.rank >= std::ssize(addresses_)) {
    incoming.lost = true;
    return false;
  }
  incoming.rank = static_cast<int>(greeting.rank);
  incoming.head_bytes = 0;
  return true;
}

MessagesOverTcp::Header MessagesOverTcp::Incoming::header() const {
  Header header{};
  std::memcpy(&header, head, sizeof header);
  return header;
}

void MessagesOverTcp::start_message(Incoming& incoming) {
  const Header header = incoming.header();
  const Label label{
      .channel = header.channel, .other = incoming.rank, .tag = static_cast<int>(header.tag)};
  const auto asked = asked_.find(key(label));
  if (asked == asked_.end()) {
    incoming.buffer = {
        .data = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(header.bytes)),
        .bytes = header.bytes};
    return;
  }
  incoming.target = std::move(asked->second.front());
  asked->second.pop_front();
  if (asked->second.empty()) asked_.erase(asked);
  expect_bytes(label, header.bytes, incoming.target->bytes);
}

void MessagesOverTcp::end_message(Incoming& incoming) {
  if (incoming.target) {
    finish(*incoming.target);
    incoming.target.reset();
  } else {
    const Header header = incoming.header();
    kept_[{header.channel, incoming.rank, static_cast<int>(header.tag)}].push_back(
        std::exchange(incoming.buffer, {}));
  }
  incoming.head_bytes = 0;
  incoming.taken = 0;
}

void MessagesOverTcp::finish(Moving& moving) {
  moving.done = true;
  --open_;
}

void MessagesOverTcp::lose(int other) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = Lost{.rank = other, .since = Clock::now()};
}

void MessagesOverTcp::expect_bytes(const Label& label, std::int64_t came, std::int64_t wanted) {
  if (came == wanted) return;
  throw Error(Fault::kPeer,
              "comm: a message of {} bytes came from rank {} (tag {}), wanted {} bytes: the ranks "
              "disagree on what they exchange",
              came, label.other, label.tag, wanted);
}

}  // namespace piton
