#include <algorithm>

#include "comm/ranks/mail.h"

namespace piton {

bool MessageMail::pending() const { return Mailbox::pending() || !moving_.empty(); }

std::vector<Mail*> MessageMail::under_way() {
  std::vector<Mail*> all;
  for (Moving& moving : moving_) all.push_back(&moving.mail);
  return all;
}

bool MessageMail::progress() {
  take_new();
  bool moved = false;
  for (auto entry = asked_.begin(); entry != asked_.end();) {
    auto& queue = entry->second;
    while (!queue.empty() && queue.front().job->ready()) {
      Moving moving{.mail = std::move(queue.front()), .transfer = nullptr};
      queue.pop_front();
      const Mail& mail = moving.mail;
      if (mail.send) traffic_.sent(mail.bytes, mail.peer);
      moving.transfer = mail.send ? channel_->send(mail.data, mail.bytes, mail.peer, mail.tag)
                                  : channel_->receive(mail.data, mail.bytes, mail.peer, mail.tag);
      moving_.push_back(std::move(moving));
      moved = true;
    }
    entry = queue.empty() ? asked_.erase(entry) : std::next(entry);
  }
  std::erase_if(moving_, [&](Moving& moving) {
    const bool done = moving.transfer->done();
    if (done) moving.mail.finish();
    moved = moved || done;
    return done;
  });
  return moved;
}

}  // namespace piton
