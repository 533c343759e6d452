// DeepSpeed's files: those that are written are read back, and those that DeepSpeed writes itself
// (one file a layer) hold the same model.
#include "megatron/deepspeed/deepspeed_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "megatron/megatron_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DeepSpeed : public testing::Test {
 protected:
  static HfSource golden(const std::string& name) {
    return HfSource(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name);
  }
  fs::path written(HfSource& source, int tensor, int pipeline) {
    MegatronWriteOptions options{
        .layout = {.tensor = tensor, .pipeline = pipeline, .head_copy = false}, .iteration = 3};
    options.layout.padded_vocabulary =
        megatron_padded_vocabulary(source.model().vocabulary, 16, tensor);
    options.form = MegatronForm::kDeepSpeed;
    options.layout.check(source.model());
    const fs::path folder = dir_ / fmt::format("written-{}", next_++);
    write_megatron(folder, source, source.model(), options);
    return folder;
  }
  static std::string refusal(const fs::path& folder) {
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  }

  TempFolder dir_;
  int next_ = 0;
};

TEST_F(DeepSpeed, TreesAreReadBack) {
  for (const char* name : {"llama3", "gpt2"}) {
    HfSource wanted = golden(name);
    for (const int tensor : {1, 2}) {
      const fs::path folder = written(wanted, tensor, 1);
      EXPECT_TRUE(
          fs::exists(folder / fmt::format("release/mp_rank_{:02}_model_states.pt", tensor - 1)));
      EXPECT_EQ(read_regular_file(folder / "latest", 100), "release");
      EXPECT_TRUE(is_megatron_folder(folder));
      MegatronSource got(folder);
      EXPECT_EQ(got.form(), "deepspeed");
      EXPECT_EQ(got.layout().tensor, tensor);
      EXPECT_EQ(got.iteration(), 3);
      expect_same(wanted, got);
    }
  }
}

// BERT and T5 as DeepSpeed itself saves them, without ZeRO and under ZeRO-3
// (tools/oracle/deepspeed_encoders.py).
TEST_F(DeepSpeed, EncodersAreThoseOfMegatron) {
  for (const char* name : {"bert", "t5"}) {
    SCOPED_TRACE(name);
    const fs::path folder = fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron_encoders" / name;
    MegatronSource wanted(folder);
    for (const char* form : {"deepspeed", "zero3"}) {
      SCOPED_TRACE(form);
      MegatronSource got(folder / form);
      EXPECT_EQ(got.form(), "deepspeed");
      EXPECT_EQ(got.iteration(), 5);
      EXPECT_EQ(got.model(), wanted.model());
      expect_same(wanted, got);
    }
  }
}

TEST_F(DeepSpeed, PipelinesOfBloomAreReadBack) {
  HfSource wanted = golden("bloom");
  ASSERT_TRUE(is_deepspeed_pipeline(wanted.model()));
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    const fs::path folder = written(wanted, tensor, pipeline);
    const fs::path last =
        folder / fmt::format("release/mp_rank_{:02}_model_states.pt", tensor * pipeline - 1);
    const TorchFile file(last);
    const PickleValue* module = file.root().find("module")->find("module");
    ASSERT_NE(module, nullptr);
    EXPECT_NE(module->find(fmt::format("{}.final_layernorm.weight", wanted.model().layers + 4)),
              nullptr);
    EXPECT_NE(module->find(fmt::format("{}.mlp.dense_4h_to_h.bias", wanted.model().layers + 2)),
              nullptr);
    MegatronSource got(folder);
    EXPECT_EQ(got.layout().tensor, tensor);
    EXPECT_EQ(got.layout().pipeline, pipeline);
    expect_same(wanted, got);
  }
}

TEST_F(DeepSpeed, PipelinesNumberTheirLayersByDigitsAlone) {
  HfSource wanted = golden("bloom");
  for (const char* number : {"3x", "x3", "99999999999", "-3"}) {
    const fs::path folder = written(wanted, 1, 1);
    EditedFile(folder / "release/mp_rank_00_model_states.pt",
               {.renamed = {{"module/module/3.mlp.dense_4h_to_h.bias",
                             fmt::format("{}.mlp.dense_4h_to_h.bias", number)}}});
    EXPECT_THAT(refusal(folder), HasSubstr(fmt::format("{}.mlp.dense_4h_to_h.bias", number)));
  }
}

// The tensors of a file's pipeline, in files of one layer each; with the final norm as a separate
// module, which DeepSpeed names by its number alone.
TEST_F(DeepSpeed, FilesOfLayersHoldTheSame) {
  HfSource wanted = golden("bloom");
  const fs::path folder = written(wanted, 2, 1);
  const fs::path layers = dir_ / "layers/global_step7";
  fs::create_directories(layers);
  for (int t = 0; t < 2; ++t) {
    const std::string rank = fmt::format("mp_rank_{:02}_model_states.pt", t);
    const TorchFile file(folder / "release" / rank);
    std::map<int, std::map<std::string, TorchTensor>> by_layer;
    for (const auto& [key, value] : file.root().find("module")->find("module")->pairs) {
      std::string name = key->text;
      int number = 1;
      if (name.starts_with("tied_modules.embed.")) {
        name = name.substr(19);
      } else {
        number = std::stoi(name);
        name = name.substr(name.find('.') + 1);
        if (name.starts_with("final_layernorm.")) name = name.substr(16);
      }
      by_layer[number][name] = file.tensor(*value, name);
    }
    for (const auto& [number, tensors] : by_layer) {
      TorchWriter out(layers / fmt::format("layer_{:02}-model_{:02}-model_states.pt", number, t));
      out.begin_dict();
      for (const auto& [name, tensor] : tensors) {
        out.text(name);
        out.tensor(tensor.dtype, tensor.shape);
      }
      out.end_dict();
      for (const auto& [name, tensor] : tensors) {
        std::int64_t bytes = torch_width(tensor.dtype);
        for (const std::int64_t size : tensor.shape) bytes *= size;
        std::vector<std::byte> block(static_cast<std::size_t>(bytes));
        file.file().read_at(tensor.offset, block);
        out.append(block);
      }
      out.commit();
    }
  }
  write_text_file(dir_ / "layers/latest", "global_step7\n");
  const MegatronGiven given{.model = [&](std::int64_t) { return wanted.model(); }};
  MegatronSource got(dir_ / "layers", given);
  expect_same(wanted, got);

  fs::remove(layers / "layer_03-model_01-model_states.pt");
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource(dir_ / "layers", given); }),
              HasSubstr("1 files are missing: layer_03-model_01-model_states.pt; copy them too"));
}

TEST_F(DeepSpeed, ThatIsNotWholeIsRefusedByName) {
  HfSource source = golden("llama3");
  const fs::path folder = written(source, 2, 1);
  fs::remove(folder / "release/mp_rank_00_model_states.pt");
  EXPECT_THAT(refusal(folder), HasSubstr("has no mp_rank_00_model_states.pt; copy it too"));
  const fs::path other = written(source, 1, 1);
  write_text_file(other / "release/zero_pp_rank_0_mp_rank_00_optim_states.pt", "x");
  EXPECT_THAT(MegatronSource(other).notes().back(),
              HasSubstr("the optimizer's state stays behind"));
  write_text_file(folder / "release/zero_pp_rank_0_mp_rank_00_model_states.pt", "x");
  EXPECT_THAT(refusal(folder), HasSubstr("are two checkpoints in one folder?"));
  write_text_file(folder / "latest", "../release");
  EXPECT_THAT(refusal(folder), HasSubstr("no checkpoint of Megatron"));
}

}  // namespace
}  // namespace piton
