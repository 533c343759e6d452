// `bench comm`: times of the collectives of all ranks, on tensors of one size; and what they say of
// the links.
#pragma once

#include <string>
#include <vector>

#include "api/planning.h"
#include "bench/timing.h"

namespace piton {

struct CollectiveFigure {
  std::string what;        // "all-reduce of bf16"
  std::int64_t bytes = 0;  // of the whole tensor
  double bus_bytes = 0;    // that each rank must send at least: 2 (n-1)/n of the bytes of an
                           // all-reduce, (n-1)/n of the others', all of a broadcast's
  Samples samples;         // until the last rank has ended
};

// Collective over all ranks: all-reduce, reduce-scatter and all-gather of fp32 and bf16 and a
// broadcast, of `elements` each, which is a multiple of the ranks; every round measures each once.
std::vector<CollectiveFigure> bench_collectives(const Machine& machine, std::int64_t elements,
                                                int rounds);

// Collective over all ranks: the speeds of links that an all-reduce of them reaches, of 16 MiB for
// the bandwidth and of a few bytes for the latency. All ranks are taken to be on one kind of link.
PlannedSpeeds measured_links(const Machine& machine);

}  // namespace piton
