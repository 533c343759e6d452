// How many rows the members of a group send to one another, for Communicator::all_to_all_rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"

namespace piton {

// The rows of each pair of members, of a member to itself too.
class RowCounts {
 public:
  explicit RowCounts(int members)
      : members_(members), counts_(static_cast<std::size_t>(members) * members) {}

  int members() const { return members_; }
  std::int64_t at(int from, int to) const { return counts_[place(from, to)]; }
  std::int64_t& at(int from, int to) { return counts_[place(from, to)]; }
  // Member by member: the rows from member i to member j are number i * members() + j.
  const std::vector<std::int64_t>& all() const { return counts_; }

  // Where the rows to a member begin among those that `from` sends, which are in the order of
  // their receivers; to = members(): how many it sends.
  std::int64_t first_sent(int from, int to) const {
    std::int64_t rows = 0;
    for (int member = 0; member < to; ++member) rows += at(from, member);
    return rows;
  }
  // Where the rows of a member begin among those that `to` receives, in the order of their
  // senders; from = members(): how many it receives.
  std::int64_t first_received(int from, int to) const {
    std::int64_t rows = 0;
    for (int member = 0; member < from; ++member) rows += at(member, to);
    return rows;
  }
  std::int64_t sent(int from) const { return first_sent(from, members_); }
  std::int64_t received(int to) const { return first_received(members_, to); }

  // Of the way back.
  RowCounts reversed() const {
    RowCounts back(members_);
    for (int from = 0; from < members_; ++from) {
      for (int to = 0; to < members_; ++to) back.at(to, from) = at(from, to);
    }
    return back;
  }

 private:
  std::size_t place(int from, int to) const {
    PITON_ASSERT(from >= 0 && from < members_ && to >= 0 && to < members_,
                 "rows from member {} to member {} of {}", from, to, members_);
    return static_cast<std::size_t>(from) * members_ + to;
  }

  int members_;
  std::vector<std::int64_t> counts_;
};

}  // namespace piton
