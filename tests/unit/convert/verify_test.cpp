// The verification detects a change of any weight and of the configuration.
#include "convert/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/host_machine.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using test::HfFolder;
using testing::HasSubstr;

VerifyReport compare(const std::filesystem::path& a, const std::filesystem::path& b) {
  test::HostMachine one;
  HfSource source(a);
  HfSource result(b);
  SilentProgress silent;
  return verify(one.machine, {source, source.model()}, {result, result.model()}, silent);
}

TEST(Verify, SeesOneBitOfAnyTensor) {
  for (const char* model : {"gpt2", "llama", "qwen3"}) {
    HfFolder folder(model);
    for (auto& [name, tensor] : folder.tensors) {
      const auto last = static_cast<std::size_t>(tensor.bytes() - 4);
      tensor.raw()[last] ^= std::byte{1};
      folder.write();
      const VerifyReport report = compare(test::golden_folder(model), folder.path());
      EXPECT_FALSE(report.equal()) << name;
      ASSERT_EQ(report.differing.size(), 1U) << name;
      EXPECT_THAT(report.differing[0], HasSubstr(": element "));
      tensor.raw()[last] ^= std::byte{1};
    }
    folder.write();
    const VerifyReport report = compare(test::golden_folder(model), folder.path());
    EXPECT_TRUE(report.equal());
    EXPECT_EQ(report.divergence, 0);
    EXPECT_GT(report.largest_logit, 0.1);
  }
}

TEST(Verify, SeesWhatOnlyTheConfigurationSays) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"rms_norm_eps", 1e-2},
           {"hidden_act", "gelu"},
           {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 2e4}}}}) {
    HfFolder folder("llama");
    folder.edit_config([&](nlohmann::ordered_json& config) { config[key] = value; });
    const VerifyReport report = compare(test::golden_folder("llama"), folder.path());
    EXPECT_TRUE(report.differing.empty()) << key;
    EXPECT_FALSE(report.equal()) << key;
    EXPECT_GT(report.divergence, 0) << key;
  }
}

TEST(Verify, OfModelsOfOtherSizesIsRefused) {
  EXPECT_THAT(
      message_of(Fault::kData,
                 [] { compare(test::golden_folder("llama"), test::golden_folder("llama3")); }),
      HasSubstr("is the checkpoint from another"));
}

TEST(Verify, IsNotDeceivedByNumbersThatAreNone) {
  HfFolder folder("llama");
  const Tensor norm = folder.tensors.at("model.norm.weight");
  norm.data<float>()[3] = std::nanf("");
  folder.write();
  EXPECT_FALSE(compare(test::golden_folder("llama"), folder.path()).equal());
  EXPECT_TRUE(compare(folder.path(), folder.path()).equal());
}

}  // namespace
}  // namespace piton
