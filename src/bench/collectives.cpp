#include "bench/collectives.h"

#include <algorithm>

namespace piton {

std::vector<CollectiveFigure> bench_collectives(const Machine& machine, std::int64_t elements,
                                                int rounds) {
  const auto group = make_group_of_all(machine.world, "bench");
  const std::int64_t n = group->size();
  const double others = static_cast<double>(n - 1) / static_cast<double>(n);
  Stream& stream = machine.stream;
  struct Case {
    CollectiveFigure figure;
    std::function<Event()> start;
  };
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor all = zero_tensor(machine, dtype, {elements});
    const Tensor mine = zero_tensor(machine, dtype, {elements / n});
    const auto add = [&](std::string_view what, double share, std::function<Event()> start) {
      cases.push_back({{.what = fmt::format("{} of {}", what, name(dtype)),
                        .bytes = all.bytes(),
                        .bus_bytes = share * static_cast<double>(all.bytes()),
                        .samples = {}},
                       std::move(start)});
    };
    Communicator& every = *group;
    add("all-reduce", 2 * others,
        [&every, &stream, all] { return every.all_reduce(all, Reduction::kSum, stream); });
    add("reduce-scatter", others,
        [&every, &stream, all, mine] { return every.reduce_scatter(mine, all, stream); });
    add("all-gather", others,
        [&every, &stream, all, mine] { return every.all_gather(all, mine, stream); });
    if (dtype == DType::kF32) {
      add("broadcast", 1, [&every, &stream, all] { return every.broadcast(all, 0, stream); });
    }
  }
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    for (Case& one : cases) {
      group->barrier();
      const double seconds = seconds_of([&] {
        one.start().wait();
        group->barrier();
      });
      if (round >= 0) one.figure.samples.seconds.push_back(seconds);
    }
  }
  std::vector<CollectiveFigure> figures;
  for (Case& one : cases) figures.push_back(std::move(one.figure));
  return figures;
}

PlannedSpeeds measured_links(const Machine& machine) {
  constexpr std::int64_t kElements = std::int64_t{4} << 20;
  constexpr int kRounds = 5;
  const auto group = make_group_of_all(machine.world, "bench");
  const int n = group->size();
  if (n == 1) return {};
  const Tensor large = zero_tensor(machine, DType::kF32, {kElements / n * n});
  const Tensor small = zero_tensor(machine, DType::kF32, {n});
  const auto all_reduce = [&](const Tensor& tensor) {
    group->barrier();
    return seconds_of([&] { group->all_reduce(tensor, Reduction::kSum, machine.stream).wait(); });
  };
  all_reduce(large);  // warms up
  Samples of_large, of_small;
  for (int round = 0; round < kRounds; ++round) {
    of_large.seconds.push_back(all_reduce(large));
    of_small.seconds.push_back(all_reduce(small));
  }
  const int messages = 2 * (n - 1);  // of a ring, as comm/virtual counts them
  const double bytes = static_cast<double>(messages) / n * static_cast<double>(large.bytes());
  const double transfer = std::max(of_large.best() - of_small.best(), 1e-9);
  PlannedSpeeds speeds{.link_bytes_per_second = bytes / transfer,
                       .latency_seconds = of_small.best() / messages,
                       .ranks_of_host = machine.world.host_size()};
  speeds.host_link_bytes_per_second = speeds.link_bytes_per_second;
  return speeds;
}

}  // namespace piton
