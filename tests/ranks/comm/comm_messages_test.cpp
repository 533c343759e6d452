// ranks: 2 4
// Collectives and messages as between hosts: every rank is treated as on a separate host.
#include "comm_cases.h"

namespace piton::ranks {

RankOptions options() { return {.timeout_seconds = 60, .ranks_per_host = 1}; }

TEST(Symmetric, BetweenHostsOnlyTheOwnPartIsThere) {
  Stage s;
  auto memory = s.group.allocate_symmetric(1000);
  EXPECT_EQ(memory->mine().bytes(), 1000);
  EXPECT_TRUE(memory->peer(s.me).defined());
  EXPECT_FALSE(memory->peer((s.me + 1) % s.n).defined());
  memory->signal(s.me, 1);
  memory->wait(1, 1);
}

}  // namespace piton::ranks
