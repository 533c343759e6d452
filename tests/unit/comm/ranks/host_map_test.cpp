// Which groups have as many members on each of their hosts.
#include "comm/ranks/host_map.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(HostMap, FindsBlocksOfMembersOnEachHost) {
  const HostMap hosts({0, 0, 0, 3, 3, 3, 6, 6, 6});
  const auto all = hosts.blocks({0, 1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->hosts, 3);
  EXPECT_EQ(all->per_host, 3);
  const auto some = hosts.blocks({0, 2, 6, 7});
  ASSERT_TRUE(some);
  EXPECT_EQ(some->hosts, 2);
  EXPECT_EQ(some->per_host, 2);
}

TEST(HostMap, HasNoBlocksOfOtherGroups) {
  const HostMap hosts({0, 0, 0, 3, 3, 3, 0, 0});
  EXPECT_FALSE(hosts.blocks({0, 1, 2})) << "one host";
  EXPECT_FALSE(hosts.blocks({0, 3})) << "one member on each";
  EXPECT_FALSE(hosts.blocks({0, 1, 3})) << "unequal numbers";
  EXPECT_FALSE(hosts.blocks({0, 1, 3, 6})) << "a host in two places";
  EXPECT_FALSE(hosts.blocks({0, 1, 3, 4, 6, 7})) << "a host in two blocks";
}

TEST(HostMap, CutsAMachineIntoHosts) {
  const std::vector<int> machine_of = {0, 0, 2, 0, 2, 2, 0};
  EXPECT_EQ(hosts_of(machine_of, 0), machine_of);
  EXPECT_EQ(hosts_of(machine_of, 1), (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(hosts_of(machine_of, 2), (std::vector<int>{0, 0, 2, 3, 2, 5, 3}));
}

}  // namespace
}  // namespace piton
