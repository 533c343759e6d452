// `bench decode` and `bench prefill`: a model with random weights continues or reads a prompt.
#pragma once

#include <map>
#include <string>

#include "bench/timing.h"
#include "kernels/measured/timed_kernels.h"
#include "model/config.h"

namespace piton {

struct DecodeBenchOptions {
  ModelConfig model;
  std::int64_t samples = 1;    // rows decoded together
  std::int64_t context = 128;  // tokens in the cache before the first decoded one
  std::int64_t tokens = 8;     // tokens per round, decoded one after the other
  int rounds = 7;
  bool profile = false;  // profile call by call in additional rounds
  std::string quantize;  // a name of codes/code_format.h; "": plain weights
};

// Profile of one token or one pass.
struct ReadProfile {
  double seconds = 0;  // 0: not profiled
  std::map<std::string, CallTime, std::less<>> by_name;
  std::map<std::string, CallTime, std::less<>> by_call;  // by name and sizes
};

struct DecodeBench {
  Samples token;              // one step of all samples: the mean over a round
  double bytes = 0;           // weights and cache that one step must read; of experts, those
                              // that are chosen if all are chosen alike
  double read_bandwidth = 0;  // bytes per second of a loop that only reads; 0 if not on the host
  MemoryCounts memory;
  ReadProfile profile;
};

// One rank. Each round: the read loop, then `tokens` steps from the same context.
DecodeBench bench_decode(const Machine& machine, const DecodeBenchOptions& options);

struct PrefillBench {
  Samples pass;  // one prompt of `context` tokens per sample; logits of the last row only
  double tokens = 0;
  double flops = 0;
  double peak = 0;  // FLOPs per second; 0: not measured
  MemoryCounts memory;
  ReadProfile profile;
};

// One rank. Each round: the peak, then one pass into an empty cache.
PrefillBench bench_prefill(const Machine& machine, const DecodeBenchOptions& options);

}  // namespace piton
