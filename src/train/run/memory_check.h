// Refuses a run that cannot fit in memory, before it allocates. Without this, the system kills
// such a run after minutes, and its log says nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/lora/lora_options.h"
#include "session/machine.h"
#include "session/session.h"
#include "tensor/arena.h"

namespace piton {

// What a rank will take of its host's memory, and what it found there.
struct RankMemory {
  std::string host;
  MemoryCounts planned;         // of the arena alone: the process needs somewhat more
  std::int64_t left_bytes = 0;  // of the host, swap included
};

// As text, for the other ranks; and back.
std::string encode(const RankMemory& memory);
RankMemory decode_rank_memory(const std::string& text);

// "1.2 GB (parameters 0.5, gradients 0.5, ...)": the kinds of at least a hundredth, largest first.
std::string memory_text(const MemoryCounts& planned);

// What each rank is about to allocate on its machine: one entry per rank, the same on all.
// Collective. None where the device has separate memory.
std::vector<RankMemory> memory_of_ranks(const Machine& machine, const MemoryCounts& planned,
                                        Communicator& everyone);

// Throws Error(kMemory) if the ranks of a host need more than the least that one of them found left
// there.
void check_memory(const std::vector<RankMemory>& ranks);

// The same for what planned() finds. With --frozen-weights auto, frozen weights stay in rows if
// packed forms do not fit; then the result is a line for the log, else empty. The same on all
// ranks.
std::string fit_memory(const LoraOptions& lora, SessionSettings& settings,
                       const std::function<std::vector<RankMemory>()>& planned);

}  // namespace piton
