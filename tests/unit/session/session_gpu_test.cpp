// Settings that GPUs carry out in another way than processors, with a line in the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/run_session.h"

namespace piton {
namespace {

// The host in the place of a GPU.
class NamedGpu final : public Device {
 public:
  std::byte* allocate(std::int64_t bytes) override { return host_.allocate(bytes); }
  void release(std::byte* data, std::int64_t bytes) override { host_.release(data, bytes); }
  Place place() const override { return {DeviceKind::kCuda, 0}; }
  std::string name() const override { return "gpu"; }
  std::unique_ptr<Stream> make_stream() override { return host_.make_stream(); }
  void upload(const void* host, const Tensor& dst, Stream& stream) override {
    host_.upload(host, dst, stream);
  }
  void download(const Tensor& src, void* host, Stream& stream) override {
    host_.download(src, host, stream);
  }
  void zero(const Tensor& dst, Stream& stream) override { host_.zero(dst, stream); }
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override {
    host_.copy(dst, src, stream);
  }
  Memory& host_memory() override { return host_; }
  std::byte* host_address(const Tensor&) const override { return nullptr; }

 private:
  HostDevice host_;
};

class WrittenLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

TEST(SessionOnGpu, GathersTokensOfExpertRanksWithALine) {
  WrittenLog log;
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads);
  const MeshSizes mesh = test::with_experts(test::mesh(1, 1, 1), 2);
  const auto settled = [&](Device& device, const MeshSizes& sizes) {
    Arena arena(device);
    const auto stream = device.make_stream();
    const auto world = make_single_world(device);
    SessionSettings settings{.model = preset("llama-tiny"),
                             .layout = {.sends_rows_to_experts = true}};
    Session::settle({*world, device, *kernels, arena, *stream, threads, log}, sizes, settings);
    return settings.layout.sends_rows_to_experts;
  };
  HostDevice host;
  NamedGpu gpu;
  EXPECT_TRUE(settled(host, mesh));
  EXPECT_TRUE(settled(gpu, test::mesh(1, 2, 1)));
  EXPECT_TRUE(log.lines.empty());
  EXPECT_FALSE(settled(gpu, mesh));
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_THAT(log.lines[0], testing::HasSubstr("--moe-token-dispatcher-type alltoall: "));
  EXPECT_THAT(log.lines[0], testing::HasSubstr("expert ranks gather all tokens"));
}

}  // namespace
}  // namespace piton
