// ranks: 4 6 nightly 8
// Collectives of groups with several ranks on each of several hosts: each two ranks, four of eight,
// are treated as a host. The results and the bits of any other way, and between hosts the bytes of
// the table in comm/ranks/hierarchical_runner.h. And training on such hosts.
#include "comm_cases.h"
#include "support/run_session.h"

namespace piton::ranks {

const int kPerHost = launched_ranks() == 8 ? 4 : 2;

RankOptions options() { return {.timeout_seconds = 60, .ranks_per_host = kPerHost}; }

// What all ranks send to other hosts during `work`.
template <typename Work>
std::int64_t sent_between_hosts(Work&& work) {
  everyone().barrier();
  const std::int64_t before = bytes_between_hosts(world());
  work();
  std::int64_t sent = bytes_between_hosts(world()) - before;
  std::int64_t sum = 0;
  for (const std::string& its :
       everyone().gather_bytes(std::string(reinterpret_cast<const char*>(&sent), sizeof sent))) {
    std::int64_t one = 0;
    std::memcpy(&one, its.data(), sizeof one);
    sum += one;
  }
  return sum;
}

TEST(Hosts, AreCrossedOnceForEachHost) {
  Stage s;
  const std::int64_t hosts = s.n / kPerHost;
  // Several rounds, of which the last is short.
  const std::int64_t count = 480 * 1001 * s.n / 2;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor data = host_tensor(dtype, {count});
    const Tensor mine = host_tensor(dtype, {count / s.n});
    const std::int64_t bytes = data.bytes();
    const std::int64_t wide = dtype == DType::kBF16 ? 2 : 1;
    EXPECT_EQ(
        sent_between_hosts([&] { s.group.all_reduce(data, Reduction::kSum, *s.stream).wait(); }),
        (hosts - 1) * bytes * (1 + wide));
    EXPECT_EQ(
        sent_between_hosts([&] { s.group.all_reduce(data, Reduction::kMax, *s.stream).wait(); }),
        (hosts - 1) * bytes * 2);
    // Of bf16 with two ranks a host, from each rank to each other one.
    EXPECT_EQ(sent_between_hosts([&] { s.group.reduce_scatter(mine, data, *s.stream).wait(); }),
              wide == 1 || kPerHost > 2 ? (hosts - 1) * (bytes * wide + bytes / hosts)
                                        : (hosts - 1) * kPerHost * bytes);
    EXPECT_EQ(sent_between_hosts([&] { s.group.all_gather(data, mine, *s.stream).wait(); }),
              (hosts - 1) * bytes);
    EXPECT_EQ(sent_between_hosts([&] { s.group.broadcast(data, s.n - 1, *s.stream).wait(); }),
              (hosts - 1) * bytes);
  }
}

TEST(Hosts, AreNotCrossedByAGroupOnOne) {
  const int first = world().rank() / 2 * 2;
  const int pair[] = {first, first + 1};
  const auto group = world().make_group(pair, "host");
  Stage s;
  const Tensor data = host_tensor(DType::kF32, {1000});
  EXPECT_EQ(sent_between_hosts([&] {
              group->all_reduce(data, Reduction::kSum, *s.stream).wait();
              group->send(data, 1 - group->rank(), 0, *s.stream).wait();
              group->receive(data, 1 - group->rank(), 0, *s.stream).wait();
            }),
            0);
}

// With one member on each host: from each to each.
TEST(Hosts, OfOtherGroupsAreCrossedByEachPair) {
  Stage s;
  std::vector<int> across;
  for (int r = s.me % kPerHost; r < s.n; r += kPerHost) across.push_back(r);
  const auto group = world().make_group(across, "across");
  const auto members = static_cast<std::int64_t>(across.size());
  const Tensor data = host_tensor(DType::kF32, {480 * members});
  for (std::int64_t i = 0; i < data.elements(); ++i) put(data, i, input(s.me, i));
  EXPECT_EQ(sent_between_hosts([&] { group->all_reduce(data, Reduction::kSum, *s.stream).wait(); }),
            kPerHost * 2 * (members - 1) * data.bytes());  // of all such groups
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < data.elements(); ++i) {
    double sum = 0;
    for (const int r : across) sum += input(r, i);
    wrong += get(data, i) != sum;
  }
  EXPECT_EQ(wrong, 0);
}

// Shards within a host, sums of parts across hosts: 2 G of G bytes of gradients. One group over all
// gathers W bytes of weights twice, and scatters gradients: 2 W + 1.5 G by the table.
TEST(Hosts, HybridShardingCrossesThemWithSumsOfPartsAlone) {
  if (world().size() != 4) return;
  ModelConfig model = preset("llama-tiny");
  model.vocabulary = 101;
  std::vector<double> alone;
  {
    HostDevice device;
    const auto single = make_single_world(device);
    alone = test::TrainingRun(*single, {.name = "one process"}, model).losses(5);
  }
  const auto bytes_of_a_step = [&](int instances) {
    test::TrainingRun run(
        world(), {.name = "DP 4", .mesh = test::mesh(1, 4, 1), .zero = 3, .instances = instances},
        model);
    const std::vector<double> losses = run.losses(4);
    std::int64_t sent = sent_between_hosts([&] {
      const double last = run.step().loss;
      EXPECT_NEAR(last, alone[4], 1e-5 * alone[4]);
    });
    for (int step = 0; step < 4; ++step) EXPECT_NEAR(losses[step], alone[step], 1e-5 * alone[step]);
    return sent;
  };
  const std::int64_t instances = bytes_of_a_step(2);
  const std::int64_t one_group = bytes_of_a_step(1);
  EXPECT_NEAR(static_cast<double>(instances) / static_cast<double>(one_group), 2 / 3.5, 0.03);
}

// Tensor ranks on a host, data ranks across.
TEST(Hosts, GiveTheLossesOfOneProcess) {
  if (world().size() != 4) return;
  ModelConfig model = preset("gpt2-tiny");
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  std::vector<double> alone;
  {
    HostDevice device;
    const auto single = make_single_world(device);
    alone = test::TrainingRun(*single, {.name = "one process"}, model).losses(5);
  }
  using test::mesh;
  for (const test::RunLayout& layout :
       {test::RunLayout{.name = "TP 2 x DP 2, ZeRO-1", .mesh = mesh(2, 2, 1), .zero = 1},
        test::RunLayout{.name = "TP 4 + SP", .mesh = mesh(4, 1, 1), .sequence_parallel = true},
        test::RunLayout{.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
        test::RunLayout{.name = "CP 4", .mesh = test::with_context(mesh(1, 1, 1), 4)}}) {
    SCOPED_TRACE(layout.name);
    const std::vector<double> losses = test::TrainingRun(world(), layout, model).losses(5);
    for (int step = 0; step < 5; ++step) EXPECT_NEAR(losses[step], alone[step], 1e-5 * alone[step]);
  }
}

}  // namespace piton::ranks
