// A model without experts becomes the mixture that Megatron-core makes of it
// (tools/oracle/upcycling.py).
#include "model_files/upcycling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files/files.h"
#include "base/json.h"
#include "model/canonical_tensors.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

using Values = std::vector<double>;
using TensorValues = std::map<std::string, Values>;

// Tensors that are listed; the others of the model are 0.
class ListedSource final : public TensorSource {
 public:
  ListedSource(const ModelConfig& model, TensorValues values) : values_(std::move(values)) {
    for (const CanonicalShape& one : canonical_tensors(model))
      tensors_[one.name] = {.name = one.name, .shape = one.shape};
  }
  std::string where() const override { return "DENSE"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> list;
    for (const auto& [name, tensor] : tensors_)
      if (kind == tensor.kind) list.push_back(tensor);
    return list;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const auto found = values_.find(name);
    for_each_stretch(tensors_.at(name).shape, run, [&](auto at, auto, auto count) {
      for (std::int64_t i = at; i < at + count; ++i, dst += size_bytes(dtype)) {
        const double value = found == values_.end() ? 0 : found->second[i];
        if (dtype == DType::kF64) {
          std::memcpy(dst, &value, sizeof value);
        } else {
          const auto single = static_cast<float>(value);
          std::memcpy(dst, &single, sizeof single);
        }
      }
    });
  }

 private:
  std::map<std::string, CanonicalTensor> tensors_;
  TensorValues values_;
};

Values flat(const nlohmann::json& rows) {
  Values values;
  for (const nlohmann::json& row : rows)
    for (const nlohmann::json& value : row) values.push_back(value.get<double>());
  return values;
}

TensorValues tensors_in(const nlohmann::json& json) {
  TensorValues tensors;
  for (const auto& [name, rows] : json.items()) tensors[name] = flat(rows);
  return tensors;
}

ModelConfig small_model() {
  return {.family = "llama",
          .layers = 1,
          .hidden = 4,
          .ffn_hidden = 8,
          .heads = 1,
          .groups = 1,
          .head_size = 4,
          .vocabulary = 8,
          .max_positions = 8,
          .activation = ActivationKind::kSilu,
          .gated = true,
          .biases = false};
}

OpenedModel opened(const ModelConfig& model, const TensorValues& values = {}) {
  OpenedModel one;
  one.model = model;
  one.source = std::make_unique<ListedSource>(model, values);
  return one;
}

Upcycling into(std::int64_t experts, std::int64_t granularity, std::int64_t width) {
  Upcycling wanted{.granularity = granularity, .seed = 7};
  wanted.experts.experts = experts;
  wanted.experts.ffn_hidden = width;
  return wanted;
}

Values read_all(OpenedModel& model, const std::string& name) {
  for (const CanonicalTensor& one : model.source->tensors(TensorKind::kWeight)) {
    if (one.name != name) continue;
    Values values(static_cast<std::size_t>(one.shape.elements()));
    model.source->read(name, whole_run(one.shape), DType::kF64,
                       reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

// For each row the first one with the same values.
std::vector<std::int64_t> first_equal_rows(const Values& router, std::int64_t columns) {
  std::vector<std::int64_t> rows;
  const auto count = std::ssize(router) / columns;
  for (std::int64_t row = 0; row < count; ++row) {
    std::int64_t first = 0;
    while (!std::equal(router.begin() + first * columns, router.begin() + (first + 1) * columns,
                       router.begin() + row * columns))
      ++first;
    rows.push_back(first);
  }
  return rows;
}

TEST(Upcycling, MakesTheExpertsOfMegatronCore) {
  const std::string path = PITON_SOURCE_DIR "/tests/golden/megatron/upcycling.json";
  const auto golden = read_json<nlohmann::json>(read_text_file(path));
  ASSERT_EQ(golden.at("cases").size(), 5);
  for (const auto& [name, one] : golden.at("cases").items()) {
    SCOPED_TRACE(name);
    ModelConfig dense = small_model();
    dense.gated = one.at("gated").get<bool>();
    if (!dense.gated) {
      dense.activation =
          one.at("squared").get<bool>() ? ActivationKind::kSquaredRelu : ActivationKind::kGeluErf;
    }
    const auto slices = one.at("granularity").get<std::int64_t>();
    Upcycling wanted =
        into(one.at("experts").get<std::int64_t>(), slices, dense.ffn_hidden / slices);
    wanted.experts.choices = one.at("choices").get<std::int64_t>();
    wanted.experts.normalized = one.at("normalized").get<bool>();
    OpenedModel model = opened(dense, tensors_in(one.at("dense")));
    make_experts(model, wanted);
    EXPECT_EQ(model.model.ffn_hidden, dense.ffn_hidden / slices);
    // In fp64 here, and in fp32 there.
    for (const auto& [tensor, values] : tensors_in(one.at("mixture"))) {
      const Values got = read_all(model, tensor);
      ASSERT_EQ(got.size(), values.size()) << tensor;
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(got[i], values[i], std::abs(values[i]) * 0x1p-22) << tensor << " " << i;
    }
    EXPECT_EQ(first_equal_rows(read_all(model, "layers.0.mlp.router.weight"), dense.hidden),
              one.at("first_equal_rows").get<std::vector<std::int64_t>>());
  }
}

TEST(Upcycling, ReadsPartsOfTensorsAsOfWholeOnes) {
  TensorValues values;
  for (const char* part : {"gate", "up", "down"}) {
    Values& all = values[std::string("layers.0.mlp.") + part + ".weight"];
    for (int i = 0; i < 32; ++i) all.push_back(i + 0.5);
  }
  OpenedModel model = opened(small_model(), values);
  make_experts(model, into(4, 2, 4));
  for (const std::string tensor : {"router", "experts.3.gate", "experts.3.down"}) {
    const std::string name = "layers.0.mlp." + tensor + ".weight";
    const Values whole = read_all(model, name);
    ASSERT_EQ(whole.size(), 16);
    Values part(3);  // rows 1 and 2, columns 1 and 2: elements 1 to 3 of these four
    model.source->read(name, {{1, 1}, {2, 2}, 1, 4}, DType::kF64,
                       reinterpret_cast<std::byte*>(part.data()));
    EXPECT_EQ(part, (Values{whole[6], whole[9], whole[10]})) << tensor;
  }
}

TEST(Upcycling, LeavesLayersWithoutExpertsAndDrawsWhatAllTokensShare) {
  ModelConfig dense = small_model();
  dense.layers = 2;
  OpenedModel model = opened(dense);
  Upcycling wanted = into(2, 1, 8);
  wanted.experts.dense_layers = {0};
  wanted.experts.shared_ffn_hidden = 3;
  make_experts(model, wanted);
  EXPECT_EQ(std::ssize(model.source->tensors(TensorKind::kWeight)),
            std::ssize(canonical_tensors(model.model)));
  EXPECT_THAT(model.drawn, testing::UnorderedElementsAre("layers.1.mlp.shared.gate.weight",
                                                         "layers.1.mlp.shared.up.weight",
                                                         "layers.1.mlp.shared.down.weight"));
}

TEST(Upcycling, RefusesWhatDoesNotFit) {
  const auto refused = [](const ModelConfig& dense, const Upcycling& wanted, Fault fault) {
    OpenedModel model = opened(dense);
    return message_of(fault, [&] { make_experts(model, wanted); });
  };
  const ModelConfig dense = small_model();
  EXPECT_THAT(refused(dense, into(3, 2, 4), Fault::kUsage),
              HasSubstr("--moe-upcycling-granularity: got 2, wanted a divisor of --num-experts"));
  EXPECT_THAT(refused(dense, into(4, 0, 4), Fault::kUsage),
              HasSubstr("--moe-upcycling-granularity: got 0"));
  EXPECT_THAT(refused(dense, into(4, 2, 3), Fault::kUsage),
              HasSubstr("got 2, and the MLPs of DENSE have a width of 8, its experts would have "
                        "one of 3"));
  Upcycling other = into(4, 2, 4);
  other.experts.dense_layers = {0};
  other.ffn_hidden = 4;
  EXPECT_THAT(refused(dense, other, Fault::kUsage),
              HasSubstr("--ffn-hidden-size: got 4, but the MLPs of DENSE"));
  ModelConfig mixture = dense;
  mixture.experts.emplace();
  EXPECT_THAT(refused(mixture, into(4, 1, 8), Fault::kData), HasSubstr("a mixture of experts"));
}

}  // namespace
}  // namespace piton
