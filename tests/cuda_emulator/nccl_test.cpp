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
};

// Losses and norms of three steps, as text.
std::string train(World& world, Device& device, Kernels& kernels, const Layout& layout) {
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
                   .layout = {.linears = {.sequence_parallel = layout.sequence_parallel},
                              .vocabulary_multiple = 16},
                   .zero_stage = layout.zero,
                   .schedule = layout.schedule,
                   .micro_batches = static_cast<int>(sizes.size()),
                   .seed = 11});
  session.initialize();
  std::string all;
  for (int step = 0; step < 3; ++step) {
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

// By day every second.
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
    Layout{"tensor_2_data_2_zero_1", "llama-tiny", DType::kF32, test::mesh(2, 2, 1), 1}};
INSTANTIATE_TEST_SUITE_P(Layouts, NcclTraining, testing::ValuesIn(test::sampled(kLayouts, 2)),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piton::cuda
