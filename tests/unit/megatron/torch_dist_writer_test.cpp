// Folders of torch_dist that Piton writes: they hold the source's tensors, and their metadata names
// what Megatron-core's own does.
#include "megatron/torch_dist_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/files/files.h"
#include "huggingface/hf_source.h"
#include "megatron/distributed/torch_dist.h"
#include "megatron/megatron_source.h"
#include "pickle/pickle.h"
#include "pickle/torch_file.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path golden_files(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden" / name;
}

MegatronWriteOptions to_torch_dist(const ModelConfig& model, int tensor = 1, int pipeline = 1) {
  MegatronWriteOptions options{.layout = {.tensor = tensor, .pipeline = pipeline},
                               .form = MegatronForm::kTorchDist,
                               .iteration = 7};
  options.layout.padded_vocabulary = megatron_padded_vocabulary(model.vocabulary, 16, tensor);
  return options;
}

std::vector<fs::path> box_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "release")) {
    if (entry.path().extension() == ".distcp") files.push_back(entry.path());
  }
  return files;
}

TEST(WrittenTorchDist, IsReadBackWithItsArguments) {
  for (const char* name : {"gpt2", "llama", "llama3", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    HfSource wanted(golden_files(fmt::format("huggingface/{}", name)));
    for (const int tensor : {1, 2}) {
      TempFolder dir;
      write_megatron(dir.path(), wanted, wanted.model(), to_torch_dist(wanted.model(), tensor, 2));
      MegatronSource got(dir.path());
      EXPECT_EQ(got.form(), "torch_dist");
      EXPECT_EQ(got.iteration(), 7);
      EXPECT_EQ(got.layout().tensor, tensor);
      EXPECT_EQ(got.layout().pipeline, 2);
      EXPECT_EQ(got.model().vocabulary, wanted.model().vocabulary);
      EXPECT_TRUE(got.notes().empty());
      expect_same(wanted, got);
      EXPECT_EQ(box_files(dir.path()).size(), 1U);
    }
  }
}

TEST(WrittenTorchDist, IsInFilesOfAtMostTheSizeThatWasAskedFor) {
  HfSource wanted(golden_files("huggingface/llama3"));
  TempFolder dir;
  MegatronWriteOptions options = to_torch_dist(wanted.model());
  options.max_file_bytes = 16384;
  write_megatron(dir.path(), wanted, wanted.model(), options);
  std::int64_t largest = 0;
  for (const CanonicalTensor& one : wanted.tensors(TensorKind::kWeight))
    largest = std::max(largest, 2 * one.shape.elements() * size_bytes(one.dtype));
  EXPECT_GT(box_files(dir.path()).size(), 3U);
  // A larger box has a separate file; the archive around a box takes less than 1 KB.
  for (const fs::path& file : box_files(dir.path()))
    EXPECT_LT(fs::file_size(file), static_cast<std::uintmax_t>(std::max(largest, 16384L) + 2048));
  MegatronSource got(dir.path());
  expect_same(wanted, got);
}

// Sizes and types of tensors, and names of what is no tensor, as .metadata has them.
struct Named {
  std::map<std::string, std::string> tensors;
  std::set<std::string> objects;
};

Named named_in(const fs::path& folder) {
  const std::string where = (folder / ".metadata").string();
  const PickleDocument document = read_pickle(read_text_file(where), where);
  Named named;
  for (const auto& [name, value] : document.root().find("state_dict_metadata")->pairs) {
    if (name->text.starts_with("optimizer.")) continue;
    const PickleValue* size = value->find("size");
    if (size == nullptr) {
      named.objects.insert(name->text);
      continue;
    }
    std::string text = value->find("properties")->state->items.at(0)->text;
    for (const PickleValue* one : size->items) text += fmt::format(" {}", one->integer);
    named.tensors[name->text] = text;
  }
  return named;
}

TEST(WrittenTorchDist, NamesWhatMegatronCoreDoes) {
  // Both folders are of one model; the second was written by four processes of Megatron-core.
  MegatronSource plain(golden_files("megatron/torch_dist/plain"));
  TempFolder dir;
  MegatronWriteOptions options = to_torch_dist(plain.model());
  options.layout.padded_vocabulary = 128;
  write_megatron(dir.path(), plain, plain.model(), options);
  const Named ours = named_in(dir / "release");
  const Named theirs = named_in(golden_files("megatron/torch_dist/divided/iter_0000005"));
  ASSERT_GT(theirs.tensors.size(), 8U);
  EXPECT_EQ(ours.tensors, theirs.tensors);
  ASSERT_FALSE(theirs.objects.empty());
  for (const std::string& name : theirs.objects) EXPECT_TRUE(ours.objects.contains(name)) << name;
}

// BERT and T5, of which each folder has the same model twice: a file of one rank, and what
// Megatron-core's dist_checkpointing writes (tools/oracle/megatron_encoders.py).
TEST(WrittenTorchDist, OfEncodersNamesWhatMegatronCoreDoes) {
  for (const char* name : {"bert", "t5"}) {
    SCOPED_TRACE(name);
    const fs::path folder = golden_files(fmt::format("megatron_encoders/{}", name));
    MegatronSource plain(folder);
    MegatronSource theirs(folder / "dist");
    EXPECT_EQ(theirs.form(), "torch_dist");
    EXPECT_EQ(theirs.model(), plain.model());
    expect_same(plain, theirs);
    TempFolder dir;
    write_megatron(dir.path(), plain, plain.model(), to_torch_dist(plain.model(), 2));
    const Named wanted = named_in(folder / "dist/iter_0000005");
    const Named got = named_in(dir / "release");
    EXPECT_EQ(got.tensors, wanted.tensors);
    EXPECT_GT(wanted.objects.size(), 8U);
    for (const std::string& one : wanted.objects) EXPECT_TRUE(got.objects.contains(one)) << one;
    MegatronSource ours(dir.path());
    EXPECT_EQ(ours.model(), plain.model());
    expect_same(plain, ours);
  }
}

// Another source whose tensors of one layer are fp32.
class MixedSource final : public TensorSource {
 public:
  explicit MixedSource(TensorSource& source) : source_(source) {}
  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all = source_.tensors(kind);
    for (CanonicalTensor& one : all)
      one.dtype = one.name.starts_with("layers.1.mlp_norm") ? DType::kF32 : DType::kBF16;
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    source_.read(name, run, dtype, dst);
  }

 private:
  TensorSource& source_;
};

TEST(WrittenTorchDist, OfLayersOfTwoTypesHasTheTypeThatHoldsBoth) {
  HfSource source(golden_files("huggingface/llama3"));
  MixedSource mixed(source);
  TempFolder dir;
  write_megatron(dir.path(), mixed, source.model(), to_torch_dist(source.model()));
  MegatronSource got(dir.path());
  for (const CanonicalTensor& one : got.tensors(TensorKind::kWeight)) {
    const bool norm = one.name.find("mlp_norm") != std::string::npos;
    EXPECT_EQ(one.dtype, norm ? DType::kF32 : DType::kBF16) << one.name;
  }
}

TEST(WrittenTorchDist, OfAModelThatMegatronCoreLacksIsRefused) {
  HfSource source(golden_files("huggingface/bloom"));
  TempFolder dir;
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           write_megatron(dir.path(), source, source.model(),
                                          to_torch_dist(source.model()));
                         }),
              HasSubstr("has a norm after the embedding, which Megatron-core's models do not store "
                        "in torch_dist; wanted --ckpt-format torch"));
}

TEST(WrittenTorchDist, HasAnEmptyStateOfEveryModule) {
  HfSource source(golden_files("huggingface/llama3"));
  TempFolder dir;
  write_megatron(dir.path(), source, source.model(), to_torch_dist(source.model()));
  const fs::path folder = dir / "release";
  const std::string where = (folder / ".metadata").string();
  const PickleDocument document = read_pickle(read_text_file(where), where);
  std::set<std::string> states;
  for (const auto& [index, place] : document.root().find("storage_data")->pairs) {
    const std::string& name = index->find("fqn")->text;
    if (name.find("_extra_state") == std::string::npos) continue;
    const RegularFile file(folder / place->find("relative_path")->text);
    const FilePart part(file, place->find("offset")->integer, place->find("length")->integer);
    const TorchFile state(part);
    ASSERT_EQ(state.root().items.size(), 1U) << name;
    EXPECT_EQ(state.root().items[0]->kind, PickleValue::Kind::kNone) << name;
    states.insert(name);
  }
  // A module that is there once is part 0 of 1; those of layers are numbered through.
  EXPECT_TRUE(states.contains("decoder.final_layernorm._extra_state/shard_0_1"));
  EXPECT_TRUE(states.contains("decoder.layers.mlp.linear_fc1._extra_state/shard_1_2"));
  ASSERT_EQ(source.model().layers, 2);
  EXPECT_EQ(states.size(), 11U);
}

}  // namespace
}  // namespace piton
