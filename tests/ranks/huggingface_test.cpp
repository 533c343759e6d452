// ranks: 2 4
// A Hugging Face folder gives the logits of Transformers under every layout.
#include <cmath>

#include "api/model.h"
#include "checkpoint/safetensors.h"
#include "device/host_device.h"
#include "huggingface/family.h"
#include "kernels/cpu/kernels.h"
#include "support/golden_huggingface.h"
#include "support/instruction_sets.h"
#include "support/tensors.h"
// After what it needs: it defines main().
#include "ranks/setting.h"

namespace piton::ranks::huggingface_test {

namespace {

struct ReadLayout {
  int tensor = 1;
  int pipeline = 1;
  int zero = 0;
};

TEST(HuggingFaceModel, IsReadUnderEveryLayout) {
  const std::vector<ReadLayout> layouts =
      ranks::world().size() == 2
          ? std::vector<ReadLayout>{{.tensor = 2}, {.pipeline = 2}, {.zero = 3}}
          : std::vector<ReadLayout>{{.tensor = 2, .pipeline = 2}, {.tensor = 2, .zero = 3}};
  for (const std::string& name : test::golden_folders()) {
    const std::filesystem::path folder = test::golden_folder(name);
    const SafetensorsFile expected(folder / "expected.safetensors");
    const Tensor tokens = expected.tensor("tokens");
    const Tensor wanted = expected.tensor("logits");
    const ModelConfig config = hf_model(HfConfig::read(folder));
    for (const ReadLayout& layout : layouts) {
      // Some folders have an odd width on purpose, and one has a single key-value head.
      if (config.ffn_hidden % layout.tensor != 0 || config.groups % layout.tensor != 0) continue;
      HostDevice device;
      SilentLog log;
      ThreadPool threads(1);
      const auto kernels = make_cpu_kernels(threads, test::chosen_isa());
      Arena arena(device);
      const auto stream = device.make_stream();
      const Machine machine{ranks::world(), device, *kernels, arena, *stream, threads, log};
      InferenceOptions options;
      options.tensor = layout.tensor;
      options.pipeline = layout.pipeline;
      options.zero_stage = layout.zero;
      const auto model = Model::load(machine, folder, {}, options);
      const Tensor got =
          model->logits({tokens.data<std::int32_t>(), static_cast<std::size_t>(tokens.elements())});
      double worst = 0;
      for (std::int64_t i = 0; i < got.elements(); ++i)
        worst = std::max(worst, std::abs(test::value_at(got, i) - test::value_at(wanted, i)));
      EXPECT_LT(worst, 1e-4) << name << " TP " << layout.tensor << " PP " << layout.pipeline
                             << " ZeRO " << layout.zero;
    }
  }
}

}  // namespace
}  // namespace piton::ranks::huggingface_test
