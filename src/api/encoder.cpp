#include "api/encoder.h"

#include <algorithm>

#include "api/text_batches.h"
#include "checkpoint/load_values.h"
#include "checkpoint/read_newest.h"
#include "model_files/model_tokenizer.h"
#include "model_files/opened_model.h"
#include "session/session.h"

namespace piton {
namespace {

// The ids of a batch, filled up to the longest text.
MicroBatch micro_batch_of(std::span<const std::vector<std::int32_t>> texts, const TextBatch& of) {
  MicroBatch batch{.samples = std::ssize(of.numbers), .sequence = of.length};
  bool has_padding = false;
  for (const std::size_t number : of.numbers) {
    std::vector<std::int32_t> ids = texts[number];
    if (std::ssize(ids) > of.length) {
      ids[static_cast<std::size_t>(of.length) - 1] = ids.back();
      ids.resize(static_cast<std::size_t>(of.length));
    }
    has_padding = has_padding || std::ssize(ids) < of.length;
    for (std::int64_t i = 0; i < of.length; ++i) {
      const bool is_text = i < std::ssize(ids);
      batch.tokens.push_back(is_text ? ids[static_cast<std::size_t>(i)] : 0);
      batch.segments.push_back(is_text ? 0 : kPaddingSegment);
      batch.positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  if (!has_padding) batch.segments.clear();  // all see one another: no mask
  batch.labels.assign(batch.tokens.size(), kNoLabel);
  batch.loss_mask.assign(batch.tokens.size(), 0.0F);
  return batch;
}

// The vector of a text of `tokens` tokens, of its hidden states [s, h].
void pool(const float* hidden, std::int64_t tokens, Pooling pooling, std::span<float> row) {
  const std::int64_t count = pooling == Pooling::kFirst ? 1 : tokens;
  std::vector<double> sums(row.size());
  for (std::int64_t token = 0; token < count; ++token) {
    for (double& sum : sums) sum += *hidden++;
  }
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(sums[i] / static_cast<double>(count));
}

}  // namespace

struct Encoder::State {
  explicit State(const Machine& machine) : machine(machine) {}
  Machine machine;
  std::unique_ptr<Communicator> everyone;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Session> session;

  void load_values(OpenedModel& opened, const std::filesystem::path& path) {
    const StoredModel stored{.parameters = session->parameters(), .sharded = &session->sharded()};
    const StoreContext context{.mesh = *mesh,
                               .device = machine.device,
                               .arena = machine.arena,
                               .stream = machine.stream,
                               .threads = &machine.threads};
    if (opened.format == ModelFormat::kPiton) {
      read_newest(path, *everyone,
                  [&](const std::filesystem::path& one) { load_checkpoint(one, stored, context); });
    } else {
      load_weights(*opened.source, stored, context);
    }
    session->publish_values();
  }

  // fp32 [b*s, h] on the host; of the pooler [b, h].
  std::vector<float> hidden(const MicroBatch& batch, bool pooled) {
    std::vector<ModelInput> inputs = {session->upload(batch, {})};
    inputs[0].wanted = {.loss = false, .hidden = !pooled, .pooled = pooled};
    std::vector<float> values;
    session->pipeline().forward(session->context(false), inputs, [&](int, ChunkOutput& output) {
      const Tensor found = pooled ? output.pooled : output.hidden;
      Tensor wide = found;
      if (wide.dtype() != DType::kF32) {
        wide = machine.arena.allocate(DType::kF32, found.shape(), MemoryKind::kActivations,
                                      machine.stream);
        machine.kernels.run(Copy{.dst = wide, .src = found}, machine.stream);
      }
      values.resize(static_cast<std::size_t>(wide.elements()));
      machine.device.download(wide, values.data(), machine.stream);
    });
    return values;
  }
};

Encoder::Encoder() = default;
Encoder::~Encoder() = default;

std::unique_ptr<Encoder> Encoder::load(const Machine& machine, const std::filesystem::path& path,
                                       const TokenizerOptions& tokenizer) {
  if (machine.world.size() != 1) {
    throw Error(Fault::kUsage, "embed: vectors are computed by one process, and {} were started",
                machine.world.size());
  }
  std::unique_ptr<Encoder> encoder(new Encoder);
  encoder->state_ = std::make_unique<State>(machine);
  State& state = *encoder->state_;
  state.everyone = make_group_of_all(machine.world, "encoder");
  OpenedModel opened = open_model({.path = path, .ranks = state.everyone.get()});
  if (!opened.model.encoder) {
    throw Error(
        Fault::kData, "{}: is a decoder{} ({}), which continues texts; wanted an encoder (bert)",
        path.string(), opened.model.encoder_decoder ? " with an encoder" : "", opened.model.family);
  }
  state.tokenizer = tokenizer.empty() ? open_tokenizer_of(opened) : open_tokenizer(tokenizer);
  if (!state.tokenizer) {
    throw Error(Fault::kData, "{}: has no tokenizer; name one by --tokenizer-name-or-path",
                path.string());
  }
  check_rows_for(*state.tokenizer, opened.model, path.string());
  for (const std::string& note : opened.notes) machine.log.warning(note);
  state.mesh = std::make_unique<Mesh>(machine.world, MeshSizes{});
  state.session = std::make_unique<Session>(
      state.machine, *state.mesh,
      SessionSettings{
          .model = opened.model,
          .layout = {.vocabulary_multiple = opened.tokenizer.options.make_vocab_size_divisible_by},
          .use = SessionUse::kInference});
  state.load_values(opened, path);
  return encoder;
}

const ModelConfig& Encoder::config() const { return state_->session->settings().model; }

std::vector<std::int32_t> Encoder::ids_of(const std::string& text) const {
  const Tokenizer& tokenizer = *state_->tokenizer;
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special_tokens = true});
  const SpecialIds& special = tokenizer.special();
  // Files of a vocabulary alone do not say where these ids go.
  if (special.cls && special.sep && (ids.empty() || ids.front() != *special.cls)) {
    ids.insert(ids.begin(), *special.cls);
    ids.push_back(*special.sep);
  }
  return ids;
}

Tensor Encoder::embed(std::span<const std::vector<std::int32_t>> texts, Pooling pooling) {
  const std::int64_t most = config().longest_sequence();
  const EncoderFacts& facts = *config().encoder;
  const bool pooled = pooling == Pooling::kPooler;
  if (pooled && !facts.pair_head && !facts.pooler) {
    throw Error(Fault::kUsage,
                "embed: --pooling pooler: the model has no pooler; wanted mean or first");
  }
  for (const std::vector<std::int32_t>& ids : texts) {
    if (ids.empty()) throw Error(Fault::kUsage, "embed: a text without ids; wanted one or more");
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= config().vocabulary) {
        throw Error(Fault::kUsage, "embed: id {} is outside of the vocabulary; wanted 0 to {}", id,
                    config().vocabulary - 1);
      }
    }
  }
  const Tensor vectors = host_tensor(DType::kF32, {std::ssize(texts), config().hidden});
  std::vector<std::int64_t> lengths;
  for (const std::vector<std::int32_t>& ids : texts)
    lengths.push_back(std::min<std::int64_t>(std::ssize(ids), most));
  for_each_text_batch(lengths, [&](const TextBatch& batch) {
    const std::vector<float> hidden = state_->hidden(micro_batch_of(texts, batch), pooled);
    for (std::size_t i = 0; i < batch.numbers.size(); ++i) {
      const std::size_t number = batch.numbers[i];
      const std::int64_t tokens = pooled ? 1 : lengths[number];
      const std::int64_t rows = pooled ? 1 : batch.length;  // of each text
      pool(hidden.data() + static_cast<std::int64_t>(i) * rows * config().hidden, tokens, pooling,
           {vectors.data<float>() + static_cast<std::int64_t>(number) * config().hidden,
            static_cast<std::size_t>(config().hidden)});
    }
  });
  return vectors;
}

}  // namespace piton
