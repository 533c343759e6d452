#include "cli/compatibility/meeting_place.h"

#include <array>
#include <charconv>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr int kMostRanks = 1 << 20;

struct RankVariables {
  const char* rank;
  const char* size;
  const char* host_rank;
  const char* host_size;  // SLURM_STEP_TASKS_PER_NODE is "2(x4)" or "3,2": the first number is near
};

// mpirun may run within the others.
constexpr std::array<RankVariables, 4> kRankVariables{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};

// The number in variable `name`, of at least `least` and below `end`.
int number_in(const Lookup& lookup, const char* name, int least, int end) {
  const std::string text = lookup(name).value_or("");
  int value = 0;
  const char* const last = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), last, value);
  const bool whole = rest == last || *rest == '(' || *rest == ',';
  if (code != std::errc() || !whole || value < least || value >= end) {
    throw Error(Fault::kUsage, "environment: {}: got \"{}\", wanted a number from {} to {}", name,
                text, least, end - 1);
  }
  return value;
}

}  // namespace

std::optional<MeetingPlace> find_meeting_place(const Lookup& lookup) {
  for (const RankVariables& variables : kRankVariables) {
    if (!lookup(variables.size) || !lookup(variables.rank)) continue;
    const int size = number_in(lookup, variables.size, 1, kMostRanks);
    if (size == 1) return std::nullopt;
    MeetingPlace place{.address = "",
                       .rank = number_in(lookup, variables.rank, 0, size),
                       .size = size,
                       .host_rank = -1,
                       .host_size = 1};
    const bool counts_host = lookup(variables.host_size).has_value();
    if (lookup(variables.host_rank) || counts_host) {
      place.host_rank = number_in(lookup, variables.host_rank, 0, size);
      place.host_size = counts_host ? number_in(lookup, variables.host_size, 1, size + 1)
                                    : place.host_rank + 1;  // so many there are
    }
    const bool one_host = counts_host && place.host_size == size;
    if (const auto address = lookup("MASTER_ADDR")) {
      place.address = *address;
    } else if (one_host) {
      place.address = "127.0.0.1";
    } else {
      return std::nullopt;
    }
    if (lookup("PITON_PORT")) {
      place.port = number_in(lookup, "PITON_PORT", 1, kLastPort + 1);
    } else if (lookup("MASTER_PORT")) {
      const bool taken = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
      place.port =
          number_in(lookup, "MASTER_PORT", 1, kLastPort + (taken ? 0 : 1)) + (taken ? 1 : 0);
    }
    return place;
  }
  return std::nullopt;
}

}  // namespace piton::cli
