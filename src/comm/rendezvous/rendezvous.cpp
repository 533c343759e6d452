#include "comm/rendezvous/rendezvous.h"

#include <fmt/ranges.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/server.h"

namespace piton {
namespace {

constexpr std::chrono::seconds kLeaving{10};
constexpr std::chrono::seconds kTelling{2};
constexpr const char* kRankZeroIsLost =
    "rank 0 is lost: its process has ended, or its host is not reachable";

}  // namespace

Rendezvous::Rendezvous(const MeetingPlace& place, double timeout_seconds) : place_(place) {
  if (place_.rank == 0) {
    server_ = std::make_unique<RendezvousServer>(place_, timeout_seconds);
    place_.port = server_->port();
  }
  join(timeout_seconds);
  thread_ = std::thread([this] { run(); });
}

Rendezvous::~Rendezvous() {
  {
    const std::scoped_lock lock(mutex_);
    leaves_ = true;
  }
  send(MessageWriter(MessageKind::kGoodbye).bytes());
  if (server_ && !failure()) server_->wait_for_goodbyes(kLeaving);
  connection_.shut();
  thread_.join();
}

void Rendezvous::join(double timeout_seconds) {
  const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(timeout_seconds));
  const bool itself = place_.rank == 0 && place_.address != kThisHostAddress;
  const std::string host = itself ? "localhost" : place_.address;
  connection_ = connect_to(host, place_.port, std::chrono::steady_clock::now() + limit);
  connection_.send(MessageWriter(MessageKind::kHello)
                       .number(kProtocol)
                       .number(static_cast<std::uint64_t>(place_.rank))
                       .number(static_cast<std::uint64_t>(place_.size))
                       .bytes());
  bool accepted = false;
  for (;;) {
    if (const auto frame = buffer_.next(kMostBytes)) {
      MessageReader message(*frame);
      const MessageKind kind = message.kind();
      if (kind == MessageKind::kWelcome) return;
      if (kind == MessageKind::kAccepted) {
        accepted = true;
        continue;
      }
      const bool refused = kind == MessageKind::kRefused;
      throw Error(refused ? Fault::kUsage : Fault::kPeer, "rendezvous at {} port {}: {}",
                  place_.address, place_.port, message.text());
    }
    if (!connection_.receive(buffer_)) {
      if (accepted) throw Error(Fault::kPeer, "rendezvous: {}", kRankZeroIsLost);
      throw Error(Fault::kPeer,
                  "rendezvous: what listens at {} port {} is not rank 0 of this run; choose "
                  "another port with MASTER_PORT, or PITON_PORT under torchrun",
                  place_.address, place_.port);
    }
  }
}

void Rendezvous::send(const std::string& frame) {
  const std::scoped_lock lock(send_mutex_);
  connection_.send(frame);
}

// Rank 0 reaches itself by a loopback address, and so may other ranks of its host.
std::string Rendezvous::own_address() const {
  const std::string address = connection_.local_address();
  const bool loopback = address.empty() || address == "::1" || address.starts_with("127.");
  return loopback ? place_.address : address;
}

void Rendezvous::run() {
  try {
    for (;;) {
      while (const auto frame = buffer_.next(kMostBytes)) take(*frame);
      if (!connection_.receive(buffer_)) break;
    }
  } catch (const Error& error) {
    return set_failure(error.what());
  }
  set_failure(kRankZeroIsLost);
}

void Rendezvous::take(const std::string& frame) {
  MessageReader message(frame);
  const MessageKind kind = message.kind();
  if (kind == MessageKind::kFailed) return set_failure(message.text());
  if (kind != MessageKind::kGathered) return;
  std::string key = message.text();
  const auto ranks = message.number();
  std::vector<std::string> parts;
  for (std::uint64_t i = 0; i < ranks; ++i) parts.push_back(message.text());
  const std::scoped_lock lock(mutex_);
  gathered_[std::move(key)] = std::move(parts);
  changed_.notify_all();
}

void Rendezvous::set_failure(const std::string& why) {
  const std::scoped_lock reporting(report_mutex_);
  {
    const std::scoped_lock lock(mutex_);
    if (failure_ || leaves_) return;
    failure_ = why;
    changed_.notify_all();
  }
  if (report_) report_(why);
}

std::vector<std::string> Rendezvous::gather(const std::string& name, std::span<const int> ranks,
                                            const std::string& mine) {
  std::string key = fmt::format("{} of ranks {}", name, fmt::join(ranks, ", "));
  {
    const std::scoped_lock lock(mutex_);
    key += fmt::format(", call {}", calls_[key]++);
  }
  MessageWriter part(MessageKind::kPart);
  part.text(key).number(ranks.size());
  for (const int rank : ranks) part.number(static_cast<std::uint64_t>(rank));
  part.text(mine);
  send(part.bytes());
  std::unique_lock lock(mutex_);
  // The server ends a gather that takes too long.
  changed_.wait(lock, [&] { return failure_ || gathered_.contains(key); });
  if (const auto found = gathered_.find(key); found != gathered_.end()) {
    std::vector<std::string> parts = std::move(found->second);
    gathered_.erase(found);
    return parts;
  }
  throw Error(Fault::kPeer, "comm: {} (in {})", *failure_, key);
}

void Rendezvous::fail(int code, const std::string& why) {
  if (failure()) return;
  send(MessageWriter(MessageKind::kFailed)
           .number(static_cast<std::uint64_t>(code))
           .text(why)
           .bytes());
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTelling, [&] { return failure_.has_value(); });
}

std::optional<std::string> Rendezvous::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

void Rendezvous::on_failure(std::function<void(const std::string&)> report) {
  const std::scoped_lock reporting(report_mutex_);
  report_ = std::move(report);
  if (const auto known = failure(); known && report_) report_(*known);
}

}  // namespace piton
