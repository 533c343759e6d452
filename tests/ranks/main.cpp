// The main function of the rank tests of this folder, which are one program; each of its files is a
// test of CTest. Those of comm/ are a program each: they end processes, or see hosts in another
// way.
#include "support/ranks_main.h"

namespace piton {

RankOptions ranks::options() { return {.timeout_seconds = 120}; }

}  // namespace piton
