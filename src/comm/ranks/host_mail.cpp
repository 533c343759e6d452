#include <algorithm>
#include <cstring>

#include "comm/ranks/mail.h"

namespace piton {

namespace {

// True if `bytes` fit. If not, the reader rings as soon as there is room.
bool has_room(ByteRing& ring, std::int64_t bytes) {
  if (ring.writable() >= bytes) return true;
  ring.wants_room->store(1, std::memory_order_seq_cst);
  return ring.writable() >= bytes;
}

}  // namespace

HostMail::HostMail(HostBoard& board)
    : board_(&board), sending_(board.size()), arriving_(board.size()) {}

bool HostMail::pending() const {
  if (Mailbox::pending()) return true;
  return std::any_of(sending_.begin(), sending_.end(), [](const auto& q) { return !q.empty(); }) ||
         std::any_of(arriving_.begin(), arriving_.end(), [](const auto& a) { return a.active; });
}

std::vector<Mail*> HostMail::under_way() {
  std::vector<Mail*> all;
  for (auto& queue : sending_) {
    for (Sending& sending : queue) all.push_back(&sending.mail);
  }
  for (Arriving& arriving : arriving_) {
    if (arriving.mail) all.push_back(&*arriving.mail);
  }
  return all;
}

void HostMail::drop() {
  for (auto& queue : sending_) queue.clear();
  for (Arriving& arriving : arriving_) {
    if (arriving.mail)
      arriving.buffer.resize(arriving.header.bytes);  // the rest of the message goes there
    arriving.mail.reset();
  }
}

bool HostMail::progress() {
  take_new();
  bool moved = start_ready();
  for (int peer = 0; peer < board_->size(); ++peer) {
    moved |= write(peer);
    moved |= read(peer);
  }
  return moved;
}

// Puts ready sends into the queue of their ring. Completes ready receives whose message has already
// arrived.
bool HostMail::start_ready() {
  bool moved = false;
  for (auto entry = asked_.begin(); entry != asked_.end();) {
    auto& [key, queue] = *entry;
    while (!queue.empty() && queue.front().job->ready()) {
      Mail& mail = queue.front();
      if (mail.send) {
        sending_[mail.peer].push_back({.mail = std::move(mail)});
      } else {
        const auto kept = kept_.find(key);
        if (kept == kept_.end()) break;  // read() finds this receive when its message comes
        const std::vector<std::byte>& message = kept->second.front();
        PITON_ASSERT(std::ssize(message) == mail.bytes, "{}: a message of {} bytes came", mail.text,
                     message.size());
        if (mail.bytes > 0) std::memcpy(mail.data, message.data(), message.size());
        mail.finish();
        kept->second.pop_front();
        if (kept->second.empty()) kept_.erase(kept);
      }
      queue.pop_front();
      moved = true;
    }
    entry = queue.empty() ? asked_.erase(entry) : std::next(entry);
  }
  return moved;
}

bool HostMail::write(int peer) {
  auto& queue = sending_[peer];
  if (queue.empty()) return false;
  ByteRing ring = board_->ring(board_->rank(), peer);
  bool moved = false;
  while (!queue.empty()) {
    Sending& sending = queue.front();
    Mail& mail = sending.mail;
    if (sending.written < 0) {
      if (!has_room(ring, sizeof(Header))) break;
      const Header header{.group = mail.group, .tag = mail.tag, .bytes = mail.bytes};
      ring.write(reinterpret_cast<const std::byte*>(&header), sizeof header);
      sending.written = 0;
      moved = true;
    }
    const std::int64_t left = mail.bytes - sending.written;
    if (left > 0) {
      // Write at least half a ring (or the rest), so that the reader is not woken for a few bytes.
      const std::int64_t now = std::min(left, ring.capacity / 2);
      if (!has_room(ring, now)) break;
      ring.write(mail.data + sending.written, now);
      sending.written += now;
      moved = true;
      if (sending.written < mail.bytes) {
        board_->bell(peer).ring();
        continue;
      }
    }
    mail.finish();
    queue.pop_front();
  }
  if (moved) board_->bell(peer).ring();
  return moved;
}

bool HostMail::read(int peer) {
  ByteRing ring = board_->ring(peer, board_->rank());
  Arriving& arriving = arriving_[peer];
  bool moved = false;
  for (;;) {
    if (!arriving.active) {
      if (ring.readable() < static_cast<std::int64_t>(sizeof(Header))) break;
      ring.take(reinterpret_cast<std::byte*>(&arriving.header), sizeof(Header));
      arriving.active = true;
      arriving.taken = 0;
      const Key key{false, peer, arriving.header.group, static_cast<int>(arriving.header.tag)};
      const auto asked = asked_.find(key);
      // The first pending receive of this tag matches this message, because earlier messages went
      // to earlier receives; unless an earlier message is kept because its receive was not ready.
      if (asked != asked_.end() && asked->second.front().job->ready() && !kept_.contains(key)) {
        arriving.mail = std::move(asked->second.front());
        asked->second.pop_front();
        if (asked->second.empty()) asked_.erase(asked);
        PITON_ASSERT(arriving.mail->bytes == arriving.header.bytes,
                     "{}: a message of {} bytes came", arriving.mail->text, arriving.header.bytes);
      } else {
        arriving.buffer.resize(arriving.header.bytes);
      }
      moved = true;
    }
    const std::int64_t now = std::min(arriving.header.bytes - arriving.taken, ring.readable());
    if (now > 0) {
      std::byte* to = arriving.mail ? arriving.mail->data : arriving.buffer.data();
      ring.take(to + arriving.taken, now);
      arriving.taken += now;
      moved = true;
    }
    if (arriving.taken < arriving.header.bytes) break;
    if (arriving.mail) {
      arriving.mail->finish();
      arriving.mail.reset();
    } else {
      const Key key{false, peer, arriving.header.group, static_cast<int>(arriving.header.tag)};
      kept_[key].push_back(std::move(arriving.buffer));
      arriving.buffer = {};
    }
    arriving.active = false;
  }
  if (moved && ring.wants_room->exchange(0, std::memory_order_seq_cst) != 0) {
    board_->bell(peer).ring();
  }
  return moved;
}

}  // namespace piton
