#include "train/run/memory_check.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/files/host_name.h"
#include "base/files/system_files.h"
#include "base/json.h"

namespace piton {
namespace {

struct HostNeed {
  int ranks = 0;
  std::int64_t bytes = 0;
  std::array<std::int64_t, kMemoryKinds> by_kind{};
  std::int64_t left_bytes = std::numeric_limits<std::int64_t>::max();
};

double gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

// The kinds with at least a hundredth of the whole, the largest first.
std::string kinds_text(const HostNeed& need) {
  std::vector<int> order(kMemoryKinds);
  std::iota(order.begin(), order.end(), 0);
  const auto bytes = [&](int kind) { return need.by_kind[static_cast<std::size_t>(kind)]; };
  std::ranges::sort(order, std::greater<>(), bytes);
  std::string text;
  for (const int kind : order) {
    if (bytes(kind) * 100 < need.bytes) continue;
    text += fmt::format("{}{} {:.1f}", text.empty() ? "" : ", ",
                        name(static_cast<MemoryKind>(kind)), gigabytes(bytes(kind)));
  }
  return text;
}

std::map<std::string, HostNeed> needs_of_hosts(const std::vector<RankMemory>& ranks) {
  std::map<std::string, HostNeed> hosts;
  for (const RankMemory& rank : ranks) {
    HostNeed& need = hosts[rank.host];
    need.ranks += 1;
    need.bytes += rank.planned.peak_total_bytes;
    for (std::size_t kind = 0; kind < need.by_kind.size(); ++kind) {
      need.by_kind[kind] += rank.planned.peak_bytes[kind];
    }
    need.left_bytes = std::min(need.left_bytes, rank.left_bytes);
  }
  return hosts;
}

}  // namespace

std::string encode(const RankMemory& memory) {
  return nlohmann::json{{"host", memory.host},
                        {"peak", memory.planned.peak_total_bytes},
                        {"kinds", memory.planned.peak_bytes},
                        {"left", memory.left_bytes}}
      .dump();
}

RankMemory decode_rank_memory(const std::string& text) {
  const nlohmann::json json = read_json<nlohmann::json>(text);
  RankMemory memory{.host = json.at("host"), .left_bytes = json.at("left")};
  memory.planned.peak_total_bytes = json.at("peak");
  memory.planned.peak_bytes = json.at("kinds");
  return memory;
}

std::string memory_text(const MemoryCounts& planned) {
  HostNeed need{.bytes = planned.peak_total_bytes};
  std::copy_n(planned.peak_bytes.begin(), kMemoryKinds, need.by_kind.begin());
  return fmt::format("{:.3g} GB ({})", gigabytes(need.bytes), kinds_text(need));
}

void check_memory(const std::vector<RankMemory>& ranks) {
  for (const auto& [host, need] : needs_of_hosts(ranks)) {
    if (need.bytes <= need.left_bytes) continue;
    throw Error(
        Fault::kMemory,
        "memory of {}: the run needs {:.1f} GB for {} rank{} ({}), and {:.1f} GB are left; "
        "use a smaller --micro-batch-size, --recompute-granularity full, --exp-avg-dtype and "
        "--exp-avg-sq-dtype bf16 or --remote-device FOLDER, or shard over more hosts "
        "(--zero-stage, "
        "--tensor-model-parallel-size); `piton plan` computes it without running",
        host, gigabytes(need.bytes), need.ranks, need.ranks == 1 ? "" : "s", kinds_text(need),
        gigabytes(need.left_bytes));
  }
}

std::string fit_memory(const LoraOptions& lora, SessionSettings& settings,
                       const std::function<std::vector<RankMemory>()>& planned) {
  std::vector<RankMemory> ranks = planned();
  std::string line;
  const bool fits = std::ranges::all_of(needs_of_hosts(ranks), [](const auto& host) {
    return host.second.bytes <= host.second.left_bytes;
  });
  if (!fits && lora.given() && lora.frozen_weights == "auto") {
    settings.frozen_forms = FrozenForms::kRows;
    ranks = planned();
    line =
        "--frozen-weights auto: rows, because packed forms of them do not fit into memory; "
        "the numbers are the same, and products are slower";
  }
  check_memory(ranks);
  return line;
}

std::vector<RankMemory> memory_of_ranks(const Machine& machine, const MemoryCounts& planned,
                                        Communicator& everyone) {
  if (machine.device.place() != machine.device.host_memory().place()) return {};
  const HostMemory memory = host_memory();
  std::vector<RankMemory> ranks;
  for (const std::string& text : everyone.gather_bytes(encode(
           {.host = host_name(), .planned = planned, .left_bytes = memory.left + memory.swap}))) {
    ranks.push_back(decode_rank_memory(text));
  }
  return ranks;
}

}  // namespace piton
