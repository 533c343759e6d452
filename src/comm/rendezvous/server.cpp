#include "comm/rendezvous/server.h"

#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

constexpr int kLookMilliseconds = 50;

}  // namespace

RendezvousServer::RendezvousServer(const MeetingPlace& place, double timeout_seconds)
    : listener_(place.port, place.address == kThisHostAddress ? ReachedFrom::kThisHost
                                                              : ReachedFrom::kAnywhere),
      size_(place.size),
      timeout_(timeout_seconds),
      thread_([this] { run(); }) {}

RendezvousServer::~RendezvousServer() {
  ends_ = true;
  thread_.join();
}

void RendezvousServer::wait_for_goodbyes(std::chrono::seconds limit) const {
  const auto end = Clock::now() + limit;
  while (goodbyes_ < size_ && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RendezvousServer::run() {
  while (!ends_) {
    std::vector<pollfd> all{{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const auto& guest : guests_) {
      all.push_back({.fd = guest->connection.descriptor(), .events = POLLIN, .revents = 0});
    }
    ::poll(all.data(), all.size(), kLookMilliseconds);
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i].revents != 0) receive(*guests_[i - 1]);
    }
    if (all[0].revents != 0) {
      auto guest = std::make_unique<Guest>();
      guest->connection = listener_.accept();
      if (guest->connection.open()) guests_.push_back(std::move(guest));
    }
    check_times();
    std::erase_if(guests_, [](const auto& guest) { return guest->gone; });
  }
}

void RendezvousServer::receive(Guest& guest) {
  if (!guest.connection.receive(guest.buffer)) return lose(guest);
  try {
    while (!guest.gone) {
      const auto frame = guest.buffer.next(guest.rank < 0 ? kMostOfHello : kMostBytes);
      if (!frame) return;
      take(guest, *frame);
    }
  } catch (const Error&) {  // not a message of Piton
    lose(guest);
  }
}

void RendezvousServer::take(Guest& guest, const std::string& frame) {
  MessageReader message(frame);
  const MessageKind kind = message.kind();
  if (guest.rank < 0) {
    // Others than ranks may find this port: whatever they send, they are only closed.
    if (kind != MessageKind::kHello) return lose(guest);
    return greet(guest, message);
  }
  if (kind == MessageKind::kPart) {
    add_part(guest, message);
  } else if (kind == MessageKind::kFailed) {
    const std::uint64_t code = message.number();
    const std::string why = message.text();
    fail(why.empty() ? fmt::format("rank {} has failed (exit code {})", guest.rank, code)
                     : fmt::format("rank {} has failed (exit code {}): {}", guest.rank, code, why));
  } else if (kind == MessageKind::kGoodbye) {
    guest.gone = true;
    ++goodbyes_;
  } else {
    lose(guest);
  }
}

void RendezvousServer::greet(Guest& guest, MessageReader& hello) {
  if (hello.number() != kProtocol) return lose(guest);
  const std::uint64_t rank = hello.number();
  const std::uint64_t size = hello.number();
  std::string why;
  if (size != static_cast<std::uint64_t>(size_)) {
    why = fmt::format(
        "rank {} is one of {} ranks, and rank 0 is one of {}; give all ranks the "
        "same WORLD_SIZE",
        rank, size, size_);
  } else if (rank >= size) {
    why = fmt::format("RANK={} of {} ranks; wanted 0 to {}", rank, size, size - 1);
  } else if (complete_ || guest_of(static_cast<int>(rank)) != nullptr) {
    why = fmt::format(
        "two processes are rank {} of {}; give each its own RANK, and each run its "
        "own MASTER_PORT",
        rank, size);
  }
  if (!why.empty()) {
    guest.connection.send(MessageWriter(MessageKind::kRefused).text(why).bytes());
    guest.gone = true;
    return;
  }
  guest.rank = static_cast<int>(rank);
  if (failure_) {
    guest.connection.send(MessageWriter(MessageKind::kFailed).text(*failure_).bytes());
    return;
  }
  // To all before the first welcome: rank 0 may end, and this server with it, at its own.
  guest.connection.send(MessageWriter(MessageKind::kAccepted).bytes());
  const auto here =
      std::count_if(guests_.begin(), guests_.end(), [](const auto& one) { return one->rank >= 0; });
  if (here < size_) return;
  complete_ = true;
  for (const auto& one : guests_) {
    if (one->rank >= 0) one->connection.send(MessageWriter(MessageKind::kWelcome).bytes());
  }
}

void RendezvousServer::add_part(const Guest& guest, MessageReader& message) {
  const std::string key = message.text();
  Gather& gather = gathers_[key];
  if (gather.parts.empty()) {
    gather.begun = Clock::now();
    for (std::uint64_t left = message.number(); left > 0; --left) {
      gather.ranks.push_back(static_cast<int>(message.number()));
    }
  } else {
    for (std::uint64_t left = message.number(); left > 0; --left) message.number();
  }
  gather.parts[guest.rank] = message.text();
  if (gather.parts.size() < gather.ranks.size()) return;
  MessageWriter answer(MessageKind::kGathered);
  answer.text(key).number(gather.ranks.size());
  for (const int rank : gather.ranks) answer.text(gather.parts[rank]);
  for (const int rank : gather.ranks) {
    if (const Guest* one = guest_of(rank)) one->connection.send(answer.bytes());
  }
  gathers_.erase(key);
}

void RendezvousServer::lose(Guest& guest) {
  guest.gone = true;
  if (guest.rank < 0) return;
  ++goodbyes_;
  fail(fmt::format("rank {} is lost: its process has ended, or its host is not reachable",
                   guest.rank));
}

void RendezvousServer::check_times() {
  if (failure_) return;
  const auto now = Clock::now();
  const auto missing_of = [](int count, const auto& has) {
    std::vector<int> missing;
    for (int rank = 0; rank < count; ++rank) {
      if (!has(rank)) missing.push_back(rank);
    }
    return fmt::format("{}", fmt::join(missing, ", "));
  };
  if (!complete_ && now - begun_ > timeout_) {
    return fail(fmt::format(
        "not all of {} ranks have come within {:.3g} s: missing {}", size_, timeout_.count(),
        missing_of(size_, [&](int rank) { return guest_of(rank) != nullptr; })));
  }
  for (const auto& [key, gather] : gathers_) {
    if (now - gather.begun <= timeout_) continue;
    return fail(fmt::format(
        "{}: has waited {:.3g} s for ranks {}", key, timeout_.count(),
        missing_of(size_, [&, &ranks = gather.ranks, &parts = gather.parts](int rank) {
          return parts.contains(rank) || std::find(ranks.begin(), ranks.end(), rank) == ranks.end();
        })));
  }
}

void RendezvousServer::fail(const std::string& why) {
  if (failure_) return;
  failure_ = why;
  const MessageWriter message = MessageWriter(MessageKind::kFailed).text(why);
  for (const auto& guest : guests_) {
    if (guest->rank >= 0 && !guest->gone) guest->connection.send(message.bytes());
  }
}

RendezvousServer::Guest* RendezvousServer::guest_of(int rank) {
  for (const auto& guest : guests_) {
    if (guest->rank == rank && !guest->gone) return guest.get();
  }
  return nullptr;
}

}  // namespace piton
