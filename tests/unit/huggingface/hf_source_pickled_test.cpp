// Hugging Face folders with pickled weights give the same model as safetensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/file_tensor.h"
#include "huggingface/hf_source.h"
#include "pickle/torch_writer.h"
#include "support/errors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HfFolder;
using testing::HasSubstr;

void write_pickled(const fs::path& path, const std::map<std::string, Tensor>& tensors) {
  TorchWriter out(path);
  out.begin_dict();
  for (const auto& [name, tensor] : tensors) {
    out.text(name);
    out.tensor(safetensors_name(tensor.dtype()), tensor.shape().sizes());
  }
  out.end_dict();
  for (const auto& [name, tensor] : tensors)
    out.append({tensor.raw(), static_cast<std::size_t>(tensor.bytes())});
  out.commit();
}

void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const HfTensorFiles first(a);
  const HfTensorFiles second(b);
  ASSERT_EQ(first.tensors().size(), second.tensors().size());
  for (const auto& [name, one] : first.tensors()) {
    const HfTensor& other = second.tensors().at(name);
    EXPECT_EQ(one.dtype, other.dtype);
    EXPECT_EQ(one.shape, other.shape);
    std::int64_t bytes = torch_width(one.dtype);
    for (const std::int64_t size : one.shape) bytes *= size;
    EXPECT_EQ(hash_of_bytes(*one.file, one.offset, bytes),
              hash_of_bytes(*other.file, other.offset, bytes));
  }
}

TEST(PickledFolder, HoldsWhatSafetensorsHold) {
  for (const char* model : {"gpt2", "llama3"}) {
    HfFolder folder(model);
    fs::remove(folder.path() / "model.safetensors");
    write_pickled(folder.path() / "pytorch_model.bin", folder.tensors);
    EXPECT_TRUE(has_huggingface_weights(folder.path()));
    expect_same_tensors(test::golden_folder(model), folder.path());
    EXPECT_EQ(HfSource(folder.path()).model(), HfSource(test::golden_folder(model)).model());
  }
}

TEST(PickledFolder, MayHaveShards) {
  HfFolder folder("qwen2");
  fs::remove(folder.path() / "model.safetensors");
  std::map<std::string, Tensor> shards[2];
  nlohmann::json index;
  for (const auto& [name, tensor] : folder.tensors) {
    const std::size_t shard = index.size() == 0 ? 0 : index["weight_map"].size() % 2;
    shards[shard][name] = tensor;
    index["weight_map"][name] = fmt::format("pytorch_model-0000{}-of-00002.bin", shard + 1);
  }
  write_text_file(folder.path() / "pytorch_model.bin.index.json", index.dump());
  write_pickled(folder.path() / "pytorch_model-00001-of-00002.bin", shards[0]);
  EXPECT_THAT(message_of(Fault::kData, [&] { HfTensorFiles{folder.path()}; }),
              HasSubstr("1 of 2 shards are missing: pytorch_model-00002-of-00002.bin"));
  write_pickled(folder.path() / "pytorch_model-00002-of-00002.bin", shards[1]);
  expect_same_tensors(test::golden_folder("qwen2"), folder.path());
}

TEST(PickledFolder, ThatHoldsSomethingElseIsRefused) {
  HfFolder folder("llama");
  fs::remove(folder.path() / "model.safetensors");
  const fs::path path = folder.path() / "pytorch_model.bin";
  const auto message = [&] {
    return message_of(Fault::kData, [&] { HfTensorFiles{folder.path()}; });
  };
  fs::copy_file(fs::path(PITON_SOURCE_DIR) / "tests/golden/pickle/archive.pt", path);
  EXPECT_THAT(message(), HasSubstr("pytorch_model.bin: \"args\" is no tensor"));
  fs::remove(path);
  const std::string code = "cposix\nsystem\n(S'id'\ntR.";
  ZipWriter zip(path);
  zip.add("x/data.pkl", code);
  zip.commit();
  EXPECT_THAT(message(), HasSubstr("pytorch_model.bin: names posix.system, which is not a class"));
}

}  // namespace
}  // namespace piton
