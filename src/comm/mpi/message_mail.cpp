#include <algorithm>

#include "comm/mpi/mail.h"
#include "comm/mpi/mpi_call.h"

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
      Moving moving{.mail = std::move(queue.front()), .requests = {}};
      queue.pop_front();
      const Mail& mail = moving.mail;
      if (mail.send) traffic_.sent(mail.bytes, mail.peer);
      for (std::int64_t at = 0; at == 0 || at < mail.bytes; at += kMessageBytes) {
        const int bytes = static_cast<int>(std::min(kMessageBytes, mail.bytes - at));
        MPI_Request& request = moving.requests.emplace_back();
        check_mpi(
            mail.send
                ? MPI_Isend(mail.data + at, bytes, MPI_BYTE, mail.peer, mail.tag, comm_, &request)
                : MPI_Irecv(mail.data + at, bytes, MPI_BYTE, mail.peer, mail.tag, comm_, &request),
            mail.text);
      }
      moving_.push_back(std::move(moving));
      moved = true;
    }
    entry = queue.empty() ? asked_.erase(entry) : std::next(entry);
  }
  std::erase_if(moving_, [&](Moving& moving) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(moving.requests.size()), moving.requests.data(), &done,
                          MPI_STATUSES_IGNORE),
              moving.mail.text);
    if (done) moving.mail.finish();
    moved = moved || done;
    return done != 0;
  });
  return moved;
}

}  // namespace piton
