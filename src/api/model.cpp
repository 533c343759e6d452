#include "api/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "checkpoint/store.h"

namespace piton {
namespace {

MicroBatch sequence_batch(std::span<const std::int32_t> ids) {
  const auto length = static_cast<std::int64_t>(ids.size()) - 1;
  MicroBatch batch{.samples = 1, .sequence = length};
  batch.tokens.assign(ids.begin(), ids.end() - 1);
  batch.labels.assign(ids.begin() + 1, ids.end());
  batch.loss_mask.assign(length, 1.0F);
  batch.positions.resize(length);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  return batch;
}

// The canonical tensors that a parameter holds, cut from its whole local rows.
void add_pieces(const Parameter& parameter, const Tensor& rows,
                std::map<std::string, Tensor>& out) {
  for (const Piece& piece : parameter.pieces) {
    const Tensor part = rows.slice(0, piece.local_row, piece.extent[0]);
    Tensor copy = host_tensor(part.dtype(), piece.extent);
    std::memcpy(copy.raw(), part.raw(), static_cast<std::size_t>(part.bytes()));
    out[piece.name] = copy;
  }
}

}  // namespace

PretrainOptions stored_options(const std::filesystem::path& checkpoint) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  // Under a hash like the weights: a changed line would be another model with the same tensors.
  set.read_toml_text(read_config(checkpoint, read_manifest(checkpoint)),
                     (checkpoint / kConfigName).string());
  return options;
}

struct Model::State {
  explicit State(const Machine& machine) : machine(machine) {}
  Machine machine;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Session> session;
  std::filesystem::path folder;  // where the values are read from

  void load_values(Session& to) {
    load_checkpoint(folder, {.parameters = to.parameters(), .sharded = &to.sharded()},
                    {.mesh = *mesh,
                     .device = machine.device,
                     .arena = machine.arena,
                     .stream = machine.stream});
    to.publish_values();
  }
};

Model::Model() = default;
Model::~Model() = default;

double Model::Score::sum() const {
  return std::accumulate(log_likelihood.begin(), log_likelihood.end(), 0.0);
}

std::unique_ptr<Model> Model::load(const Machine& machine, const std::filesystem::path& path,
                                   const TokenizerOptions& tokenizer) {
  if (machine.world.size() != 1) {
    throw Error(
        Fault::kUsage,
        "--load: generation and scoring run on one process, and {} were started; leave mpirun out",
        machine.world.size());
  }
  const std::filesystem::path folder = find_checkpoint(path);
  PretrainOptions options = stored_options(folder);
  std::unique_ptr<Model> model(new Model);
  model->state_ = std::make_unique<State>(machine);
  State& state = *model->state_;
  const TokenizerOptions& named = tokenizer.empty() ? options.tokenizer : tokenizer;
  std::optional<std::int64_t> vocabulary;
  if (!options.tokenizer.empty() || !tokenizer.empty()) {
    state.tokenizer = open_tokenizer(named);
    vocabulary = state.tokenizer->vocabulary_size();
  }
  SessionSettings settings{.model = options.model.resolve(vocabulary),
                           .vocabulary_multiple = options.tokenizer.make_vocab_size_divisible_by,
                           .seed = options.loop.seed,
                           .use = SessionUse::kInference};
  state.mesh = std::make_unique<Mesh>(machine.world, MeshSizes{});
  state.session = std::make_unique<Session>(state.machine, *state.mesh, settings);
  state.folder = folder;
  state.load_values(*state.session);
  return model;
}

const ModelConfig& Model::config() const { return state_->session->settings().model; }

const Tokenizer* Model::tokenizer() const { return state_->tokenizer.get(); }

const Tokenizer& Model::require_tokenizer() const {
  if (!state_->tokenizer)
    throw Error(Fault::kUsage, "--tokenizer-type: the run has no tokenizer; name one, or give ids");
  return *state_->tokenizer;
}

std::vector<GeneratedToken> Model::generate(
    std::span<const std::int32_t> prompt, const SamplingOptions& options,
    const std::function<bool(const GeneratedToken&)>& each) {
  std::optional<std::int32_t> end;
  if (state_->tokenizer) {
    end = state_->tokenizer->special().eos ? state_->tokenizer->special().eos
                                           : state_->tokenizer->special().eod;
  }
  return piton::generate(state_->session->context(false), state_->session->chunk(0), prompt,
                         options, end, each);
}

Tensor Model::logits(std::span<const std::int32_t> ids) {
  const std::int64_t vocabulary = config().vocabulary;
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length > config().max_positions) {
    throw Error(Fault::kUsage, "score: {} tokens, and the model takes {}; cut the text", length,
                config().max_positions);
  }
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary)
      throw Error(Fault::kUsage, "score: id {} is outside of the vocabulary; wanted 0 to {}", id,
                  vocabulary - 1);
  }
  std::vector<std::int32_t> padded(ids.begin(), ids.end());
  padded.push_back(0);  // a label that nobody reads
  Context context = state_->session->context(false);
  const ModelInput input = state_->session->upload(sequence_batch(padded), {});
  const Tensor device_logits = state_->session->chunk(0).logits(context, input, nullptr, false);
  const Tensor whole = host_tensor(DType::kF32, device_logits.shape());
  state_->machine.device.download(device_logits, whole.raw(), state_->machine.stream);
  Tensor logits = host_tensor(DType::kF32, {length, vocabulary});
  for (std::int64_t row = 0; row < length; ++row) {
    std::memcpy(logits.data<float>() + row * vocabulary, whole.data<float>() + row * whole.dim(1),
                sizeof(float) * static_cast<std::size_t>(vocabulary));
  }
  return logits;
}

Model::Score Model::score(std::span<const std::int32_t> ids) {
  Score score;
  if (ids.size() < 2) return score;
  const Tensor all = logits(ids.first(ids.size() - 1));
  const std::int64_t vocabulary = config().vocabulary;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* row = all.data<float>() + static_cast<std::int64_t>(i) * vocabulary;
    const float largest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v)
      sum += std::exp(static_cast<double>(row[v]) - largest);
    const std::int32_t label = ids[i + 1];
    if (label < 0 || label >= vocabulary)
      throw Error(Fault::kUsage, "score: id {} is outside of the vocabulary; wanted 0 to {}", label,
                  vocabulary - 1);
    score.log_likelihood.push_back(static_cast<double>(row[label]) - largest - std::log(sum));
  }
  return score;
}

std::map<std::string, Tensor> Model::gradients(
    const std::vector<std::vector<std::int32_t>>& sequences) {
  std::vector<MicroBatch> batches;
  for (const auto& ids : sequences) {
    if (ids.size() >= 2) batches.push_back(sequence_batch(ids));
  }
  if (batches.empty())
    throw Error(Fault::kUsage, "score: gradients need a sequence of two tokens or more");
  SessionSettings settings = state_->session->settings();
  settings.micro_batches = static_cast<int>(batches.size());
  settings.use = SessionUse::kGradients;
  // Dropout is off: these are the gradients of the loss that is printed.
  settings.model.hidden_dropout = 0;
  settings.model.attention_dropout = 0;
  Session session(state_->machine, *state_->mesh, settings);
  state_->load_values(session);
  session.gradients(batches, 0);
  std::map<std::string, Tensor> out;
  for (const Parameter* parameter : session.parameters()) {
    Tensor host = host_tensor(parameter->gradient.dtype(), parameter->shape);
    state_->machine.device.download(parameter->gradient, host.raw(), state_->machine.stream);
    add_pieces(*parameter, host, out);
  }
  return out;
}

}  // namespace piton
