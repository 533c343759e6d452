// Several hosts, simulated with real network stacks: network namespaces of this machine with their
// own addresses, and links that tc shapes (tools/launch_hosts.sh). Skipped where these cannot be
// made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

#include "base/json.h"
#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::seconds;

constexpr int kNoNamespaces = 77;

class Hosts : public testing::Test {
 protected:
  // Runs a program on `ranks` ranks of each of `hosts` hosts, with links of 1 Gbit/s.
  std::optional<ProcessEnd> start(int hosts, int ranks, const Words& program) {
    log_ = folder_ / "log";
    std::filesystem::remove(log_);
    const std::string script = std::string(PITON_SOURCE_DIR) + "/tools/launch_hosts.sh";
    Process process(
        Words{script, std::to_string(hosts), std::to_string(ranks)} + program,
        {.environment = {"PITON_LINK=rate 1gbit burst 256kb latency 50ms"}, .out = log_});
    return process.wait(seconds(240));
  }
  std::string log() const { return text_of(log_); }
  // As the script says at its end.
  std::int64_t sent_by(int host) const {
    std::smatch found;
    const std::string text = log();
    const std::regex line("host " + std::to_string(host) + " has sent ([0-9]+) bytes");
    return std::regex_search(text, found, line) ? std::stoll(found[1]) : -1;
  }

  const TempFolder folder_;
  std::filesystem::path log_;
};

std::map<std::int64_t, double> losses_of(const std::filesystem::path& run_folder) {
  std::map<std::int64_t, double> losses;
  std::ifstream stream(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const auto record = read_json_or_discarded<nlohmann::json>(line);
    if (record.is_object() && record.contains("lm_loss")) {
      losses[record.at("iteration").get<std::int64_t>()] = record.at("lm_loss").get<double>();
    }
  }
  return losses;
}

// Every collective in every size, with its bits and the bytes of its formula. At night.
TEST_F(Hosts, GiveTheBitsAndTheBytesOfTheFormulas) {
  if (!whole()) GTEST_SKIP() << "set PITON_NIGHTLY";
  const std::string program = std::string(PITON_BINARY_DIR) + "/tests/ranks_comm_hosts_test";
  ASSERT_TRUE(std::filesystem::exists(program)) << "build the target ranks_comm_hosts_test";
  const auto end = start(2, 2, {program});
  ASSERT_TRUE(end) << log();
  if (end->code == kNoNamespaces) GTEST_SKIP() << log();
  EXPECT_EQ(*end, (ProcessEnd{.code = 0})) << log();
}

TEST_F(Hosts, TrainToTheLossesOfOneProcess) {
  make_corpus(folder_.path());
  const int steps = whole() ? 100 : 10;
  const Words flags = pretrain(folder_.path()) + Words{"--seq-length",
                                                       "16",
                                                       "--global-batch-size",
                                                       "8",
                                                       "--micro-batch-size",
                                                       "2",
                                                       "--train-iters",
                                                       std::to_string(steps),
                                                       "--lr",
                                                       "1e-4"};
  const auto one = folder_ / "one";
  ASSERT_EQ(run(flags + Words{"--save", one.string()}, {.out = folder_ / "one.log"}),
            (ProcessEnd{.code = 0}))
      << text_of(folder_ / "one.log");
  const auto wanted = losses_of(one);
  ASSERT_EQ(std::ssize(wanted), steps);
  const std::vector<std::pair<int, Words>> layouts{
      {2, {"--zero-stage", "1"}},
      {2, {"--tensor-model-parallel-size", "2", "--sequence-parallel"}},
      {2, {"--zero-stage", "3", "--num-distributed-optimizer-instances", "2"}},
      {4, {"--pipeline-model-parallel-size", "2"}}};
  std::int64_t bytes[4] = {};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const auto& [hosts, more] = layouts[i];
    const auto to = folder_ / ("run" + std::to_string(i));
    const auto end =
        start(hosts, 4 / hosts, with_program(flags) + more + Words{"--save", to.string()});
    ASSERT_TRUE(end) << log();
    if (end->code == kNoNamespaces) GTEST_SKIP() << log();
    ASSERT_EQ(*end, (ProcessEnd{.code = 0})) << log();
    const auto losses = losses_of(to);
    ASSERT_EQ(std::ssize(losses), steps);
    for (const auto& [iteration, loss] : losses) {
      ASSERT_NEAR(loss, wanted.at(iteration), 1e-5 * loss) << "layout " << i << " " << iteration;
    }
    bytes[i] = sent_by(1);
    EXPECT_GT(bytes[i], 0) << log();
    std::printf("layout %zu: %lld bytes by the first host\n", i, static_cast<long long>(bytes[i]));
  }
  // Weights and gradients stay on a host; across go the sums of parts.
  EXPECT_LT(bytes[2], bytes[0]);
}

}  // namespace
}  // namespace piton::drill
