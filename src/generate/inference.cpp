#include "generate/inference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "generate/recorded_passes.h"
#include "model/rotary.h"
#include "nn/embedding.h"

namespace piton {
namespace {

template <typename T>
std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      values.push_back(static_cast<float>(value));
    } else {
      values.push_back(to_float(value));
    }
  }
  return values;
}

std::vector<float> on_host(const Context& context, const Tensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes()), '\0');
  context.device.download(tensor, bytes.data(), context.stream);
  switch (tensor.dtype()) {
    case DType::kF64:
      return floats_of<double>(bytes);
    case DType::kBF16:
      return floats_of<BFloat16>(bytes);
    case DType::kF16:
      return floats_of<Float16>(bytes);
    default:
      return floats_of<float>(bytes);
  }
}

// Adds `rows` rows after the first `begin` ones.
void add_rows(std::vector<AdapterRows>& all, std::optional<std::int64_t> adapter,
              std::int64_t begin, std::int64_t rows) {
  if (!adapter) return;
  if (!all.empty() && all.back().choice == *adapter &&
      all.back().begin + all.back().size == begin) {
    all.back().size += rows;
    return;
  }
  PITON_ASSERT(std::ranges::find(all, *adapter, &AdapterRows::choice) == all.end(),
               "the rows of adapter {} are not next to each other", *adapter);
  all.push_back({.choice = *adapter, .begin = begin, .size = rows});
}

// The last token of the prompt that a pass reads, all of whose tokens see one another; 0: none.
std::int64_t prompt_end_in(std::span<const TextTokens> texts, const CachePages& pages) {
  for (const TextTokens& text : texts) {
    if (text.prompt_end == 0 || pages.length(text.text) > text.prompt_end) continue;
    PITON_ASSERT(
        texts.size() == 1 && pages.length(text.text) == 0 && std::ssize(text.ids) > text.prompt_end,
        "a prompt of {} tokens in a pass of {} tokens of it, and {} texts", text.prompt_end + 1,
        text.ids.size(), texts.size());
    return text.prompt_end;
  }
  return 0;
}

// Whether these are rows 0 .. n - 1, in order.
bool are_all(std::span<const std::int32_t> rows, std::int64_t n) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::cmp_not_equal(rows[i], i)) return false;
  }
  return std::ssize(rows) == n;
}

}  // namespace

Inference::Inference(Context context, Pipeline& pipeline, Mesh& mesh, const ModelConfig& config,
                     ThreadPool* threads)
    : context_(context.with_tape(nullptr)),
      pipeline_(pipeline),
      mesh_(mesh),
      config_(config),
      threads_(threads) {
  context_.training = false;
}

Inference::~Inference() = default;

KvCache Inference::make_cache() const {
  const bool takes_latents = config_.latent && context_.kernels.attends_to_latents(
                                                   config_.latent->rank, config_.latent->turned);
  KvCache cache(context_.arena, cache_numbers_, takes_latents);
  pipeline_.add_layers(cache);
  return cache;
}

KvCache Inference::make_later_cache() const {
  KvCache cache = make_cache();
  if (const Chunk* last = pipeline_.last_chunk()) last->add_later_layer(cache);
  return cache;
}

void Inference::make_room(KvCache& cache, std::int64_t pages, std::int64_t most) const {
  const std::int64_t size = cache.pages().size();
  const std::int64_t needed = size + pages - cache.pages().free();
  if (needed > size) cache.grow(context_, std::max(needed, std::min(size + size / 2, most)));
}

Tensor Inference::put(std::span<const std::int32_t> ids) {
  Tensor tensor = context_.activation(DType::kI32, {static_cast<std::int64_t>(ids.size())});
  context_.device.upload(ids.data(), tensor, context_.stream);
  return tensor;
}

ModelInput Inference::input(std::span<const std::int32_t> ids, std::int64_t samples) {
  const std::int64_t sequence = std::ssize(ids) / samples;
  std::vector<std::int32_t> positions;
  for (std::int64_t row = 0; row < std::ssize(ids); ++row)
    positions.push_back(static_cast<std::int32_t>(row % sequence));
  return {.samples = samples,
          .sequence = sequence,
          .tokens = put(ids),
          .positions = put(positions),
          .wanted = {.loss = false}};
}

ChunkOutput Inference::pass(ModelInput input) { return pass(context_, std::move(input)); }

ChunkOutput Inference::pass(const Context& context, ModelInput input) {
  ChunkOutput result;
  std::vector<ModelInput> inputs;
  inputs.push_back(std::move(input));
  pipeline_.forward(context, inputs,
                    [&](int /*micro_batch*/, ChunkOutput& output) { result = std::move(output); });
  return result;
}

Inference::CachedRows Inference::rows_in(std::span<const TextTokens> texts, KvCache& cache) const {
  CachedRows all;
  std::int64_t pages = 0;
  std::int64_t last = 0;
  for (const TextTokens& text : texts) {
    const auto count = std::ssize(text.ids);
    const std::int64_t length = cache.pages().length(text.text);
    last = std::max(last, text.text);
    const std::int64_t end = text.from.value_or(length) + count;
    all.passes.push_back({.text = text.text,
                          .tokens = count,
                          .whole = text.whole > 0 ? text.whole : end,
                          .from = text.from});
    add_rows(all.adapters, text.adapter, std::ssize(all.ids), count);
    all.ids.insert(all.ids.end(), text.ids.begin(), text.ids.end());
    pages += cache.pages().pages_to_append(text.text, std::max<std::int64_t>(0, end - length));
  }
  make_room(cache, pages);
  cache.make_states(context_, last);
  return all;
}

Tensor Inference::logits(std::span<const TextTokens> texts, std::span<const std::int32_t> rows,
                         KvCache& cache) {
  return cached_pass(texts, rows, cache, false).logits;
}

PassResults Inference::logits_and_hidden(std::span<const TextTokens> texts,
                                         std::span<const std::int32_t> rows, KvCache& cache) {
  return cached_pass(texts, rows, cache, true);
}

PassResults Inference::cached_pass(std::span<const TextTokens> texts,
                                   std::span<const std::int32_t> rows, KvCache& cache,
                                   bool hidden) {
  CachedRows all = rows_in(texts, cache);
  const std::int64_t reach = config_.prefix ? prompt_end_in(texts, cache.pages()) : 0;
  PassPlace place;
  if (reach == 0 && !hidden && repeats(texts, rows, cache)) {
    std::int64_t longest = 0;
    for (const TextTokens& text : texts)
      longest = std::max(longest, pages_of(cache.pages().length(text.text) + 1));
    place = recorded_->place(cache, std::ssize(texts), longest);
  }
  // Rows that are all of a pass, as those of decoding are, are not copied.
  const bool some = !are_all(rows, std::ssize(all.ids));
  const PassTensors tensors = cache.open(
      context_, all.passes,
      {.tokens = all.ids, .wanted = some ? rows : std::span<const std::int32_t>()}, place);
  ModelInput one{.samples = 1,
                 .sequence = std::ssize(all.ids),
                 .tokens = tensors.tokens,
                 .positions = tensors.positions,
                 .wanted = {.loss = false,
                            .logits = !rows.empty(),
                            .all_hidden = hidden,
                            .rows = tensors.wanted},
                 .cache = &cache,
                 .adapter_rows = std::move(all.adapters)};
  if (reach > 0) {
    const std::vector<std::int32_t> of_rows(all.ids.size(), static_cast<std::int32_t>(reach));
    one.query_reach = put(of_rows).reshape({1, std::ssize(of_rows)});
  }
  const SourceCache& source = cache.source();
  if (source.unread().defined()) {
    const std::vector<std::int32_t> length{static_cast<std::int32_t>(source.tokens())};
    one.source = {.sequence = source.tokens(),
                  .tokens = source.unread(),
                  .positions = source.slots(),
                  .lengths = put(length)};
  }
  PassResults results;
  if (place.integers.defined()) {
    results.logits = recorded_->run(place, [&](const Context& c) { return pass(c, one).logits; });
  } else {
    ChunkOutput output = pass(std::move(one));
    results = {std::move(output.logits), std::move(output.hidden)};
  }
  cache.source().read();
  cache.close();
  return results;
}

PassResults Inference::later_tokens(std::span<const TextTokens> texts, const Tensor& hidden,
                                    std::span<const std::int32_t> rows, KvCache& cache) {
  const CachedRows all = rows_in(texts, cache);
  const PassTensors tensors = cache.open(context_, all.passes, {.tokens = all.ids, .wanted = rows});
  PassResults results;
  if (Chunk* last = pipeline_.last_chunk()) {
    // Learned positions are those of the next tokens.
    std::vector<std::int32_t> next(cache.positions().begin(), cache.positions().end());
    for (std::int32_t& position : next) ++position;
    const bool learned = config_.positions == PositionKind::kLearned;
    const ModelInput one{
        .samples = 1,
        .sequence = std::ssize(all.ids),
        .positions = tensors.positions,
        .later = {{.tokens = tensors.tokens, .positions = learned ? put(next) : Tensor()}},
        .wanted = {.loss = false, .logits = !rows.empty(), .rows = tensors.wanted},
        .cache = &cache};
    ChunkOutput output = last->later_tokens(context_, one, hidden);
    results = {std::move(output.logits), std::move(output.hidden)};
  }
  cache.close();
  return results;
}

Tensor Inference::chosen_rows(const Tensor& all, std::span<const std::int32_t> rows) {
  return all.defined() ? piton::chosen_rows(context_, all, put(rows)) : Tensor();
}

// Whether a pass enqueues what another one over as many texts does.
bool Inference::repeats(std::span<const TextTokens> texts, std::span<const std::int32_t> rows,
                        const KvCache& cache) {
  const auto n = std::ssize(texts);
  const bool is_one = context_.stream.can_record() && n <= RecordedPasses::kMostRows &&
                      std::ssize(rows) == n && !cache.source().given() &&
                      !depends_on_length(config_.rotary_scaling) &&
                      mesh_.group(kAllAxes).size() == 1 && context_.weights.keeps_forms();
  if (!records_passes_ || !is_one) return false;
  for (std::int64_t i = 0; i < n; ++i) {
    const TextTokens& text = texts[static_cast<std::size_t>(i)];
    if (text.ids.size() != 1 || text.adapter || rows[static_cast<std::size_t>(i)] != i)
      return false;
  }
  if (!recorded_) recorded_ = std::make_unique<RecordedPasses>(context_);
  return true;
}

std::vector<std::int32_t> Inference::last_rows(std::span<const TextTokens> texts) {
  std::vector<std::int32_t> rows;
  std::int32_t end = 0;
  for (const TextTokens& text : texts) {
    end += static_cast<std::int32_t>(text.ids.size());
    rows.push_back(end - 1);
  }
  return rows;
}

Tensor Inference::logits(std::span<const std::int32_t> ids, std::int64_t samples,
                         std::span<const std::int32_t> rows) {
  ModelInput one = input(ids, samples);
  one.wanted.logits = true;
  if (!rows.empty()) one.wanted.rows = put(rows);
  return pass(std::move(one)).logits;
}

std::vector<float> Inference::embedding(std::span<const std::int32_t> ids, EmbeddingPooling pooling,
                                        std::optional<std::int64_t> adapter) {
  ModelInput one = input(ids, 1);
  add_rows(one.adapter_rows, adapter, 0, std::ssize(ids));
  one.wanted.hidden = true;
  const std::vector<std::int32_t> last{static_cast<std::int32_t>(ids.size()) - 1};
  if (pooling == EmbeddingPooling::kLast) one.wanted.rows = put(last);
  const Tensor hidden = pass(std::move(one)).hidden;
  const auto width = static_cast<std::size_t>(config_.hidden);
  std::vector<float> pooled(width);
  if (hidden.defined()) {
    const std::vector<float> rows = on_host(context_, hidden);
    const std::size_t count = rows.size() / width;
    for (std::size_t i = 0; i < width; ++i) {
      double sum = 0;
      for (std::size_t row = 0; row < count; ++row) sum += rows[row * width + i];
      pooled[i] = static_cast<float>(sum / static_cast<double>(count));
    }
  }
  const std::string bytes = from_last_stage(
      {reinterpret_cast<const char*>(pooled.data()), pooled.size() * sizeof(float)});
  PITON_ASSERT(bytes.size() == pooled.size() * sizeof(float));
  std::memcpy(pooled.data(), bytes.data(), bytes.size());
  return pooled;
}

std::vector<float> Inference::whole_vocabulary(const Tensor& split) {
  const std::span<const float> logits = host_logits(split);
  return {logits.begin(), logits.end()};
}

std::span<const float> Inference::host_logits(const Tensor& split) {
  if (!split.defined()) return {};
  PITON_ASSERT(split.dtype() == DType::kF32, "logits in {}", name(split.dtype()));
  const std::int64_t rows = split.dim(0);
  const std::int64_t part = split.dim(1);
  const Tensor all = of_tensor_ranks(split);
  // Memory that is kept grows, and is not set to zero again.
  const auto room_in = [](std::vector<float>& kept, std::int64_t count) {
    const auto size = static_cast<std::size_t>(count);
    if (kept.size() < size) kept.resize(size);
    return std::span(kept).first(size);
  };
  const std::span<float> parts = room_in(parts_, all.elements());
  context_.device.download(all, parts.data(), context_.stream);
  if (all.dim(0) == 1 && part == config_.vocabulary) return parts;
  // [t, rows, part] -> [rows, vocabulary]; padding is at the end of the last parts.
  const std::span<float> whole = room_in(whole_, rows * config_.vocabulary);
  for (std::int64_t rank = 0; rank < all.dim(0); ++rank) {
    const std::int64_t begin = rank * part;
    const std::int64_t size = std::clamp<std::int64_t>(config_.vocabulary - begin, 0, part);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(parts.begin() + (rank * rows + row) * part, size,
                  whole.begin() + row * config_.vocabulary + begin);
    }
  }
  return whole;
}

Tensor Inference::of_tensor_ranks(const Tensor& mine) {
  Communicator& group = mesh_.group(Axis::kTensor);
  const Tensor one = mine.split_dim(0, mine.dim(0));
  if (group.size() == 1) return one;
  Shape shape = one.shape();
  shape[0] = group.size();
  const Tensor all = context_.workspace(mine.dtype(), shape);
  const Event ready = group.all_gather(all, one, context_.stream);
  context_.arena.hold(all, ready.fence());
  context_.arena.hold(mine, ready.fence());
  context_.await(ready);
  return all;
}

std::vector<std::int32_t> Inference::ids_on_host(const Tensor& ids) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(ids.elements()));
  context_.device.download(ids, all.data(), context_.stream);
  return all;
}

std::vector<Inference::RowSums> Inference::row_sums(const Tensor& split, const Tensor& labels) {
  const std::int64_t part = split.dim(1);
  const std::int64_t begin = mesh_.group(Axis::kTensor).rank() * part;
  const Tensor mine = context_.activation(DType::kF32, {split.dim(0), 3});
  context_.kernels.run(
      LossStatistics{.statistics = mine,
                     .logits = split,
                     .labels = labels,
                     .vocabulary_begin = begin,
                     .valid = std::clamp<std::int64_t>(config_.vocabulary - begin, 0, part)},
      context_.stream);
  const Tensor all = of_tensor_ranks(mine);
  std::vector<float> numbers(static_cast<std::size_t>(all.elements()));
  context_.device.download(all, numbers.data(), context_.stream);
  std::vector<RowSums> sums(static_cast<std::size_t>(split.dim(0)));
  for (std::size_t row = 0; row < sums.size(); ++row) {
    const auto of_rank = [&](std::int64_t rank) {
      return numbers.data() + 3 * (static_cast<std::size_t>(rank) * sums.size() + row);
    };
    RowSums& one = sums[row];
    for (std::int64_t rank = 1; rank < all.dim(0); ++rank)
      if (of_rank(rank)[0] > of_rank(one.rank)[0]) one.rank = rank;
    one.largest = of_rank(one.rank)[0];
    for (std::int64_t rank = 0; rank < all.dim(0); ++rank) {
      const float* numbers_of_rank = of_rank(rank);
      const float mass = numbers_of_rank[1];
      if (mass != 0) one.sum += mass * std::exp(numbers_of_rank[0] - one.largest);
      one.label += numbers_of_rank[2];
    }
    if (!std::isfinite(one.largest) || !std::isfinite(one.sum)) refuse_logits();
  }
  return sums;
}

std::vector<LikelyToken> Inference::likeliest(const Tensor& split) {
  if (!split.defined()) return {};
  PITON_ASSERT(split.dtype() == DType::kF32, "logits in {}", name(split.dtype()));
  const std::int64_t rows = split.dim(0);
  const std::int64_t part = split.dim(1);
  const std::int64_t begin = mesh_.group(Axis::kTensor).rank() * part;
  const Tensor ids = context_.activation(DType::kI32, {rows});
  context_.kernels.run(
      LargestLogits{.ids = ids,
                    .logits = split,
                    .vocabulary_begin = begin,
                    .valid = std::clamp<std::int64_t>(config_.vocabulary - begin, 0, part)},
      context_.stream);
  const std::vector<std::int32_t> no_labels(static_cast<std::size_t>(rows), -1);
  const std::vector<RowSums> sums = row_sums(split, put(no_labels));
  const std::vector<std::int32_t> all_ids = ids_on_host(of_tensor_ranks(ids));
  std::vector<LikelyToken> tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    const RowSums& one = sums[static_cast<std::size_t>(row)];
    tokens.push_back({.id = all_ids[static_cast<std::size_t>(one.rank * rows + row)],
                      .log_probability = -std::log(one.sum)});
  }
  return tokens;
}

std::vector<DrawnToken> Inference::draw(const Tensor& split, std::span<const TokenDraw> draws) {
  if (!split.defined()) return {};
  PITON_ASSERT(split.dtype() == DType::kF32, "logits in {}", name(split.dtype()));
  const auto [ids, shares] = draw_ids(context_, of_tensor_ranks(split), config_.vocabulary, draws);
  const std::vector<RowSums> sums = row_sums(split, ids);
  const std::vector<std::int32_t> drawn = ids_on_host(ids);
  std::vector<double> shares_of_rows(drawn.size(), 1);
  if (std::ranges::any_of(draws, [](const TokenDraw& one) { return one.sampling->mirostat > 0; }))
    context_.device.download(shares, shares_of_rows.data(), context_.stream);
  std::vector<DrawnToken> tokens;
  for (std::size_t row = 0; row < drawn.size(); ++row) {
    if (drawn[row] < 0) refuse_logits();
    const RowSums& one = sums[row];
    tokens.push_back(
        {{drawn[row], one.label - one.largest - std::log(one.sum)}, shares_of_rows[row]});
  }
  return tokens;
}

std::string Inference::from_last_stage(const std::string& bytes) {
  constexpr AxisSet kOfCopy = axes(Axis::kTensor, Axis::kContext, Axis::kPipeline);
  Communicator& group = mesh_.group(apart_ ? kOfCopy : kAllAxes);
  if (group.size() == 1) return bytes;
  const bool gives = pipeline_.on_last_stage() && mesh_.coordinate(Axis::kTensor) == 0 &&
                     (apart_ || mesh_.coordinate(Axis::kData) == 0);
  for (std::string& one : group.gather_bytes(gives ? "1" + bytes : std::string())) {
    if (!one.empty()) return one.substr(1);
  }
  PITON_ASSERT(false, "no rank holds the last chunk");
  return {};
}

}  // namespace piton
