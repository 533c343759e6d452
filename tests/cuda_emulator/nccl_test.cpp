// Ranks as processes with an emulated GPU each, joined by comm/nccl over a library in place of
// NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "comm/message_lanes.h"
#include "comm/nccl/world.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "processes/forked_ranks.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::cuda {
namespace {

using test::RankEnd;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kPeerCode = static_cast<int>(Fault::kPeer);

NcclOptions options(int port, int rank, int size, double timeout_seconds = 60) {
  return {.place = {.port = port, .rank = rank, .size = size, .host_rank = rank, .host_size = size},
          .timeout_seconds = timeout_seconds,
          .library = PITON_FAKE_NCCL};
}

// A rank with a device, and one group of all ranks.
struct Rank {
  Rank(int port, int rank, int size, double timeout_seconds = 60)
      : device(make_device()),
        world(make_nccl_world(*device, options(port, rank, size, timeout_seconds))),
        all(make_group_of_all(*world, "all")),
        arena(std::make_unique<Arena>(*device, std::int64_t{1} << 20)),
        stream(device->make_stream()) {}

  template <typename T>
  Tensor tensor(DType dtype, const std::vector<T>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    Tensor made = arena->allocate(dtype, {count}, MemoryKind::kActivations, *stream);
    device->upload(values.data(), made, *stream);
    return made;
  }
  template <typename T>
  std::vector<T> values(const Tensor& tensor) {
    std::vector<T> all_of_it(static_cast<std::size_t>(tensor.elements()));
    device->download(tensor, all_of_it.data(), *stream);
    return all_of_it;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> all;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Stream> stream;
};

template <typename T>
std::string text(const std::vector<T>& values) {
  std::string all;
  for (const T value : values) all += fmt::format("{} ", value);
  return all;
}

TEST(NcclRanks, SumGatherScatterAndBroadcast) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int number) {
    Rank rank(port, number, 3);
    const auto mine = static_cast<float>(number + 1);
    const Tensor sum = rank.tensor<float>(DType::kF32, {mine, 10 * mine});
    rank.stream->wait(rank.all->all_reduce(sum, Reduction::kSum, *rank.stream));
    const Tensor largest = rank.tensor<std::int64_t>(DType::kI64, {-number, number});
    rank.stream->wait(rank.all->all_reduce(largest, Reduction::kMax, *rank.stream));
    const Tensor part = rank.tensor<float>(DType::kF32, {mine, -mine});
    const Tensor whole = rank.tensor<float>(DType::kF32, std::vector<float>(6));
    rank.stream->wait(rank.all->all_gather(whole, part, *rank.stream));
    const Tensor scattered = rank.tensor<float>(DType::kF32, {0, 0});
    rank.stream->wait(rank.all->reduce_scatter(scattered, whole, *rank.stream));
    const Tensor sent = rank.tensor<std::int32_t>(DType::kI32, {number, number});
    rank.stream->wait(rank.all->broadcast(sent, 1, *rank.stream));
    const TrafficCounts traffic = rank.world->traffic();
    return text(rank.values<float>(sum)) + "| " + text(rank.values<std::int64_t>(largest)) + "| " +
           text(rank.values<float>(whole)) + "| " + text(rank.values<float>(scattered)) + "| " +
           text(rank.values<std::int32_t>(sent)) +
           fmt::format("| {} {}", traffic.collectives, traffic.all_gather_bytes);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_EQ(end.code, 0);
    EXPECT_EQ(end.text, fmt::format("6 60 | 0 2 | 1 -1 2 -2 3 -3 | {} {} | 1 1 | 5 16",
                                    3 * (rank + 1), -3 * (rank + 1)));
  }
}

TEST(NcclRanks, EndAllWaitsWhenARankIsLost) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int number) -> std::string {
        Rank rank(port, number, 2);
        if (number == 1) ::_exit(9);
        const Tensor sum = rank.tensor<float>(DType::kF32, {1});
        rank.all->all_reduce(sum, Reduction::kSum, *rank.stream).wait();
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[0].code, kPeerCode);
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1 is lost"));
}

TEST(NcclRanks, ReportTheErrorOfTheRankThatFailed) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int number) -> std::string {
        Rank rank(port, number, 2);
        if (number == 1) {
          rank.world->fail(4, "no memory is left");
          throw Error(Fault::kMemory, "no memory is left");
        }
        const Tensor sum = rank.tensor<float>(DType::kF32, {1});
        rank.all->all_reduce(sum, Reduction::kSum, *rank.stream).wait();
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[0].code, kPeerCode);
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1 has failed (exit code 4): no memory is left"));
  EXPECT_EQ(ends[1].text, "no memory is left");
}

// The fake library blocks where NCCL only enqueues, so the call of the lonely rank waits for the
// group, and the rank that does not call times out in a gather of texts.
TEST(NcclRanks, EndWhatTheOthersDoNotJoin) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int number) -> std::string {
        Rank rank(port, number, 2, 1);
        if (number == 1) {
          rank.all->barrier();
          return "";
        }
        const Tensor sum = rank.tensor<float>(DType::kF32, {1});
        rank.all->all_reduce(sum, Reduction::kSum, *rank.stream).wait();
        return "";
      },
      std::chrono::seconds(20));
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, kPeerCode);
    EXPECT_THAT(end.text, HasSubstr("has waited 1 s for ranks 0"));
  }
}

TEST(NcclRanks, RefuseMessagesThatNobodyHasAnnounced) {
  const int port = test::free_port();
  const auto ends = run_ranks(2, [&](int number) -> std::string {
    Rank rank(port, number, 2);
    rank.all->send(rank.tensor<float>(DType::kF32, {1}), 1 - number, 0, *rank.stream);
    return "";
  });
  EXPECT_EQ(ends[0].code, static_cast<int>(Fault::kUsage));
  EXPECT_THAT(
      ends[0].text,
      HasSubstr("messages that are not those of a pipeline between GPUs are not supported"));
}

// Slices of several elements, of three ranks.
TEST(NcclRanks, ExchangeWithAllOthers) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int number) {
    Rank rank(port, number, 3);
    connect_all(*rank.all);
    const auto mine = static_cast<float>(10 * number);
    const Tensor sent =
        rank.tensor<float>(DType::kF32, {mine, -mine, mine + 1, -mine - 1, mine + 2, -mine - 2});
    const Tensor got = rank.tensor<float>(DType::kF32, std::vector<float>(6));
    rank.stream->wait(rank.all->all_to_all(got, sent, *rank.stream));
    const TrafficCounts traffic = rank.world->traffic();
    return text(rank.values<float>(got)) +
           fmt::format("| {} {}", traffic.all_to_all_bytes, traffic.received_bytes);
  });
  EXPECT_EQ(ends[0].text, "0 -0 10 -10 20 -20 | 16 16");
  EXPECT_EQ(ends[1].text, "1 -1 11 -11 21 -21 | 16 16");
  EXPECT_EQ(ends[2].text, "2 -2 12 -12 22 -22 | 16 16");
}

// Rank r sends r + c rows of two elements to rank c, and the last room stays as it is.
TEST(NcclRanks, ExchangeRowsWithAllOthers) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int number) {
    Rank rank(port, number, 3);
    connect_all(*rank.all);
    RowCounts counts(3);
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) counts.at(from, to) = from + to;
    }
    std::vector<float> mine;
    for (std::int64_t i = 0; i < 2 * counts.sent(number); ++i)
      mine.push_back(static_cast<float>(100 * number + i));
    const std::int64_t room = counts.received(number) + 1;
    const Tensor sent = rank.tensor<float>(DType::kF32, mine);
    const Tensor got =
        rank.tensor<float>(DType::kF32, std::vector<float>(static_cast<std::size_t>(2 * room), 7));
    rank.stream->wait(rank.all->all_to_all_rows(
        got.reshape({room, 2}), sent.reshape({sent.elements() / 2, 2}), counts, *rank.stream));
    const TrafficCounts traffic = rank.world->traffic();
    return text(rank.values<float>(got)) +
           fmt::format("| {} {}", traffic.all_to_all_bytes, traffic.received_bytes);
  });
  EXPECT_EQ(ends[0].text, "100 101 200 201 202 203 7 7 | 24 24");
  EXPECT_EQ(ends[1].text, "0 1 102 103 104 105 204 205 206 207 208 209 7 7 | 32 32");
  EXPECT_EQ(ends[2].text,
            "2 3 4 5 106 107 108 109 110 111 210 211 212 213 214 215 216 217 7 7 | 40 40");
}

TEST(NcclRanks, EndAnExchangeOfRowsWhenARankIsLost) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int number) -> std::string {
        Rank rank(port, number, 2);
        connect_all(*rank.all);
        if (number == 1) ::_exit(9);
        RowCounts counts(2);
        counts.at(0, 1) = counts.at(1, 0) = 1;
        const Tensor sent = rank.tensor<float>(DType::kF32, {1, 2});
        const Tensor got = rank.tensor<float>(DType::kF32, {0, 0});
        rank.all->all_to_all_rows(got.reshape({1, 2}), sent.reshape({1, 2}), counts, *rank.stream)
            .wait();
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[0].code, kPeerCode);
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1 is lost"));
}

// Around a ring, and of different sizes between two of three ranks; more than a mailbox holds.
TEST(NcclRanks, ExchangeMessagesWithSomeOthers) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int number) {
    Rank rank(port, number, 3);
    connect_all(*rank.all);
    const std::size_t many = (std::size_t{1} << 20) + 1000;
    std::vector<float> all(many, static_cast<float>(number));
    all.back() = 7;
    const Tensor sent = rank.tensor<float>(DType::kF32, all);
    const Tensor got = rank.tensor<float>(DType::kF32, std::vector<float>(many));
    const Exchanged ring = rank.all->exchange({{sent, (number + 1) % 3, 0}},
                                              {{got, (number + 2) % 3, 0}}, *rank.stream);
    rank.stream->wait(ring.received.at(0));
    const std::vector<float> values = rank.values<float>(got);
    std::string result = fmt::format("{} {}", values.front(), values.back());
    if (number == 2) return result;
    const Tensor small = rank.tensor<float>(DType::kF32, {static_cast<float>(number) + 0.5F});
    const Tensor two = rank.tensor<float>(DType::kF32, {0, 0});
    const Exchanged pair =
        number == 0 ? rank.all->exchange({{small, 1, 0}}, {{two, 1, 1}}, *rank.stream)
                    : rank.all->exchange({{rank.tensor<float>(DType::kF32, {8, 9}), 0, 1}},
                                         {{small, 0, 0}}, *rank.stream);
    rank.stream->wait(pair.received.at(0));
    return result + " " + text(rank.values<float>(number == 0 ? two : small));
  });
  EXPECT_EQ(ends[0].text, "2 7 8 9 ");
  EXPECT_EQ(ends[1].text, "0 7 0.5 ");
  EXPECT_EQ(ends[2].text, "1 7");
}

TEST(NcclRanks, SendMessagesOfDifferentLanesInAnyOrder) {
  const int port = test::free_port();
  const auto ends = run_ranks(2, [&](int number) {
    Rank rank(port, number, 2);
    const int other = 1 - number;
    open_lanes(*rank.all, {{0, 1, 0}, {0, 1, 1}, {1, 0, 2}}, 3);
    const auto mine = [&](float value) { return rank.tensor<float>(DType::kF32, {value}); };
    if (number == 0) {
      // Tags 3, 6: lane 0. Tag 1: lane 1. The other rank takes lane 1 first.
      rank.all->send(mine(10), other, 3, *rank.stream);
      rank.all->send(mine(20), other, 6, *rank.stream);
      rank.all->send(mine(30), other, 1, *rank.stream);
      const Tensor back = mine(0);
      rank.stream->wait(rank.all->receive(back, other, 5, *rank.stream));
      return text(rank.values<float>(back));
    }
    // Posted before the other rank can have received it.
    std::vector<Tensor> got;
    std::vector<Event> events;
    for (const int tag : {1, 3, 6}) {
      got.push_back(mine(0));
      events.push_back(rank.all->receive(got.back(), other, tag, *rank.stream));
    }
    rank.all->send(mine(40), other, 5, *rank.stream);
    std::string all;
    for (std::size_t i = 0; i < got.size(); ++i) {
      rank.stream->wait(events[i]);
      all += text(rank.values<float>(got[i]));
    }
    return all;
  });
  EXPECT_EQ(ends[0].text, "40 ");
  EXPECT_EQ(ends[1].text, "30 10 20 ");
}

TEST(NcclRanks, NameTheMessageThatDoesNotCome) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int number) -> std::string {
        Rank rank(port, number, 2, 1);
        open_lanes(*rank.all, {{0, 1, 0}}, 1);
        if (number == 0) {
          std::this_thread::sleep_for(std::chrono::seconds(4));
          return "";
        }
        const Tensor never = rank.tensor<float>(DType::kF32, {0});
        rank.all->receive(never, 0, 0, *rank.stream).wait();
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[1].code, kPeerCode);
  EXPECT_THAT(ends[1].text, AllOf(HasSubstr("messages 0 from member 0 to 1: receive number 0 of"),
                                  HasSubstr("for the other ranks")));
}

TEST(NcclRanks, NameALibraryThatIsMissing) {
  NcclOptions none = options(1, 0, 1);
  none.library = "libpiton-has-no-nccl.so.2";
  const auto device = make_device();
  EXPECT_THAT([&] { make_nccl_world(*device, none); },
              testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr("libpiton-has-no-nccl.so.2"), HasSubstr("LD_LIBRARY_PATH"))));
}

struct Layout {
  const char* name;
  const char* model;
  DType dtype;
  MeshSizes mesh;
  int zero = 0;
  bool sequence_parallel = false;
  ScheduleSettings schedule = {};
  std::int64_t layers = 2;
  ContextForms context = {};
  OptimizerKind optimizer = OptimizerKind::kAdam;
  int slices = 1;
};

// Losses and norms of three steps, as text. `before`: a step, as it begins.
std::string train(
    World& world, Device& device, Kernels& kernels, const Layout& layout,
    const std::function<void(int)>& before = [](int) {}) {
  ModelConfig model = preset(layout.model);
  model.layers = layout.layers;
  model.vocabulary = 101;
  model.hidden_dropout = model.attention_dropout = 0.1;
  model.dtype = layout.dtype;
  ThreadPool threads(1);
  SilentLog log;
  Arena arena(device, std::int64_t{1} << 20);
  const auto stream = device.make_stream();
  const Machine machine{world, device, kernels, arena, *stream, threads, log};
  Mesh mesh(world, layout.mesh);
  const int data = layout.mesh[Axis::kData];
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(4 / data), 1);
  Session session(machine, mesh,
                  {.model = model,
                   .layout = {.linears = {.slices = layout.slices,
                                          .sequence_parallel = layout.sequence_parallel},
                              .vocabulary_multiple = 16,
                              .context = layout.context},
                   .zero_stage = layout.zero,
                   .schedule = layout.schedule,
                   .micro_batches = static_cast<int>(sizes.size()),
                   .seed = 11,
                   .optimizer_options = {.kind = layout.optimizer}});
  session.initialize();
  std::string all;
  for (int step = 0; step < 3; ++step) {
    before(step);
    const std::int64_t consumed = 4 * step;
    const StepReport report = session.train_step(
        test::batches(consumed, mesh.coordinate(Axis::kData), data, model.vocabulary, sizes),
        consumed, 3e-3);
    all += fmt::format("{} {} ", report.loss, report.grad_norm);
  }
  return all;
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> all;
  std::istringstream words(text);
  for (double one; words >> one;) all.push_back(one);
  return all;
}

// As a run does: it reports the failure before its session ends.
TEST(NcclFailures, InAStepReachTheirCallers) {
  const int port = test::free_port();
  const Layout layout{"", "gpt2-tiny", DType::kF32, test::mesh(2, 1, 1)};
  const auto ends = run_ranks(
      2,
      [&](int number) {
        const auto device = make_device();
        const auto kernels = make_kernels(*device);
        const auto world = make_nccl_world(*device, options(port, number, 2));
        return train(*world, *device, *kernels, layout, [&](int step) {
          if (step != 1 || number != 1) return;
          world->fail(static_cast<int>(Fault::kUsage), "refused in a step");
          throw Error(Fault::kUsage, "refused in a step");
        });
      },
      std::chrono::seconds(60));
  EXPECT_EQ(ends[1].code, static_cast<int>(Fault::kUsage));
  EXPECT_EQ(ends[1].text, "refused in a step");
  EXPECT_EQ(ends[0].code, kPeerCode);
  EXPECT_THAT(ends[0].text, HasSubstr("rank 1 has failed (exit code 2): refused in a step"));
}

TEST(NcclFailures, FusedLinearsAreRefusedBeforeMemoryIsAllocated) {
  const int port = test::free_port();
  Layout layout{"", "gpt2-tiny", DType::kF32, test::mesh(2, 1, 1)};
  layout.slices = kFused;
  const auto ends = run_ranks(2, [&](int number) {
    const auto device = make_device();
    const auto kernels = make_kernels(*device);
    const auto world = make_nccl_world(*device, options(port, number, 2));
    return train(*world, *device, *kernels, layout);
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, static_cast<int>(Fault::kUsage));
    EXPECT_THAT(end.text, HasSubstr("--fused-linears: the ranks of --kernels cuda cannot"));
  }
}

class NcclTraining : public testing::TestWithParam<Layout> {};

TEST_P(NcclTraining, HasTheLossesOfOneProcess) {
  const Layout& layout = GetParam();
  const int ranks = layout.mesh.ranks();
  const int port = test::free_port();
  const auto ends = run_ranks(ranks, [&](int number) {
    const auto device = make_device();
    const auto kernels = make_kernels(*device);
    emulator::GuardedKernels guarded(*kernels);
    const auto world = make_nccl_world(*device, options(port, number, ranks));
    return train(*world, *device, guarded, layout);
  });
  HostDevice host;
  ThreadPool threads(1);
  const auto cpu = make_cpu_kernels(threads);
  Layout alone = layout;
  alone.mesh = test::mesh(1, 1, 1);
  alone.zero = 0;
  alone.sequence_parallel = false;
  alone.schedule = {};
  const auto world = make_single_world(host);
  const std::vector<double> wanted = numbers(train(*world, host, *cpu, alone));
  ASSERT_EQ(wanted.size(), 6U);
  const double tolerance = layout.dtype == DType::kBF16 ? 5e-3 : 1e-4;
  for (const RankEnd& end : ends) {
    ASSERT_EQ(end.code, 0) << end.text;
    const std::vector<double> got = numbers(end.text);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); i += 2) {
      EXPECT_NEAR(got[i], wanted[i], tolerance) << "loss of step " << i / 2;
      EXPECT_NEAR(got[i + 1], wanted[i + 1], 10 * tolerance * wanted[i + 1]) << "norm";
    }
  }
  EXPECT_NE(wanted[0], wanted[4]);
}

Layout context_2_heads(DType dtype) {
  return {.name = dtype == DType::kF32 ? "context_2_heads" : "context_2_heads_bf16",
          .model = "llama-tiny",
          .dtype = dtype,
          .mesh = test::with_context(test::mesh(1, 1, 1), 2),
          .context = {{ContextExchange::kHeads}}};
}

Layout context_4_heads() {
  return {.name = "context_4_heads_zero_3",
          .model = "gpt2-tiny",
          .dtype = DType::kF32,
          .mesh = test::with_context(test::mesh(1, 1, 1), 4),
          .zero = 3,
          .context = {{ContextExchange::kHeads}}};
}

Layout context_gathered() {
  return {.name = "context_2_gathered",
          .model = "llama-tiny",
          .dtype = DType::kF32,
          .mesh = test::with_context(test::mesh(1, 1, 1), 2),
          .context = {{ContextExchange::kGather}}};
}

Layout context_heads_and_rings() {
  return {.name = "context_4_heads_and_rings",
          .model = "gpt2-tiny",
          .dtype = DType::kF32,
          .mesh = test::with_context(test::mesh(1, 1, 1), 4),
          .context = {{ContextExchange::kHeadsAndRing}, 2}};
}

Layout muon(int data, int zero) {
  return {.name = zero == 1   ? "muon_zero_1"
                  : data == 2 ? "muon_2_zero_3"
                              : "muon_4_zero_3",
          .model = "llama-tiny",
          .dtype = DType::kF32,
          .mesh = test::mesh(1, data, 1),
          .zero = zero,
          .optimizer = OptimizerKind::kMuon};
}

// By day every fifth.
const std::vector<Layout> kLayouts = {
    Layout{"data_2", "gpt2-tiny", DType::kF32, test::mesh(1, 2, 1)},
    Layout{"data_2_bf16", "llama-tiny", DType::kBF16, test::mesh(1, 2, 1)},
    Layout{"data_2_zero_1", "gpt2-tiny", DType::kF32, test::mesh(1, 2, 1), 1},
    Layout{"data_2_zero_2", "gpt2-tiny", DType::kF32, test::mesh(1, 2, 1), 2},
    Layout{"data_2_zero_3", "llama-tiny", DType::kF32, test::mesh(1, 2, 1), 3},
    Layout{"tensor_2", "gpt2-tiny", DType::kF32, test::mesh(2, 1, 1)},
    Layout{"tensor_2_sequence_parallel", "llama-tiny", DType::kF32, test::mesh(2, 1, 1), 0, true},
    Layout{"pipeline_2", "gpt2-tiny", DType::kF32, test::mesh(1, 1, 2)},
    Layout{"pipeline_2_interleaved",
           "llama-tiny",
           DType::kF32,
           test::mesh(1, 1, 2),
           0,
           false,
           {.kind = ScheduleKind::kInterleaved, .chunks = 2},
           4},
    Layout{"tensor_2_pipeline_2", "llama-tiny", DType::kF32, test::mesh(2, 1, 2)},
    Layout{"tensor_2_data_2_zero_1", "llama-tiny", DType::kF32, test::mesh(2, 2, 1), 1},
    Layout{"context_2_ring", "gpt2-tiny", DType::kF32, test::with_context(test::mesh(1, 1, 1), 2)},
    Layout{"context_4_ring", "llama-tiny", DType::kF32, test::with_context(test::mesh(1, 1, 1), 4)},
    context_2_heads(DType::kF32),
    context_2_heads(DType::kBF16),
    Layout{"context_2_ring_pipeline_2", "llama-tiny", DType::kF32,
           test::with_context(test::mesh(1, 1, 2), 2)},
    context_4_heads(),
    muon(2, 3),
    muon(4, 3),
    muon(2, 1),
    context_gathered(),
    context_heads_and_rings()};
INSTANTIATE_TEST_SUITE_P(Layouts, NcclTraining, testing::ValuesIn(test::sampled(kLayouts, 5)),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piton::cuda
