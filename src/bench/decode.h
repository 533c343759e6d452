// `bench decode` and `bench prefill`: a model of random weights that reads a prompt or continues
// one.
#pragma once

#include <map>
#include <string>

#include "bench/timing.h"
#include "kernels/timed_kernels.h"
#include "model/config.h"

namespace piton {

struct DecodeBenchOptions {
  ModelConfig model;
  std::int64_t samples = 1;    // rows decoded together
  std::int64_t context = 128;  // tokens in the cache before the first one
  std::int64_t tokens = 8;     // decoded a round, one after the other
  int rounds = 7;
  bool profile = false;  // one more round, call by call
};

// Where the time of one token or of one pass goes.
struct ReadProfile {
  double seconds = 0;  // 0: not profiled
  std::map<std::string, CallTime, std::less<>> by_name;
  std::map<std::string, CallTime, std::less<>> by_call;  // by sizes as well
};

struct DecodeBench {
  Samples token;              // of one step of all samples: the mean of a round
  double bytes = 0;           // weights and cache that one step must read
  double read_bandwidth = 0;  // bytes a second of a loop that only reads; 0 away from the host
  MemoryCounts memory;
  ReadProfile profile;
};

// One rank. Each round: the read loop, then `tokens` steps from the same context.
DecodeBench bench_decode(const Machine& machine, const DecodeBenchOptions& options);

struct PrefillBench {
  Samples pass;  // of one prompt of `context` tokens a sample; logits of the last row only
  double tokens = 0;
  double flops = 0;
  double peak = 0;  // flops a second; 0: not measured
  MemoryCounts memory;
  ReadProfile profile;
};

// One rank. Each round: the peak, then one pass into an empty cache.
PrefillBench bench_prefill(const Machine& machine, const DecodeBenchOptions& options);

}  // namespace piton
