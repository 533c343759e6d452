// Where the ranks of a run meet, and which of them this process is.
#pragma once

#include <string>

namespace piton {

struct MeetingPlace {
  std::string address = "127.0.0.1";  // of rank 0
  int port = 29500;
  int rank = 0;
  int size = 1;
  int host_rank = 0;  // among the ranks of this host: the number of its GPU; -1: unknown
  int host_size = 1;
};

}  // namespace piton
