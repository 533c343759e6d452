#include "nn/kv_cache.h"

#include <algorithm>
#include <utility>

namespace piton {
namespace {

// Arrays that are uploaded together.
class JoinedArrays {
 public:
  // Returns the number of the array.
  std::size_t add(std::span<const std::int32_t> values) {
    all_.insert(all_.end(), values.begin(), values.end());
    ends_.push_back(std::ssize(all_));
    return ends_.size() - 1;
  }
  // `to`: memory for all of them, or empty.
  void upload(const Context& context, const Tensor& to) {
    const auto count = std::ssize(all_);
    joined_ = to.defined() ? to.slice(0, 0, count) : context.activation(DType::kI32, {count});
    context.device.upload(all_.data(), joined_, context.stream);
  }
  // Empty if the array is.
  Tensor tensor(std::size_t number) const {
    const std::int64_t begin = number == 0 ? 0 : ends_[number - 1];
    const std::int64_t size = ends_[number] - begin;
    return size == 0 ? Tensor() : joined_.slice(0, begin, size);
  }

 private:
  std::vector<std::int32_t> all_;
  std::vector<std::int64_t> ends_;
  Tensor joined_;
};

}  // namespace

void KvCache::add_layer(std::int64_t layer, DType dtype, std::int64_t groups,
                        std::int64_t head_size) {
  PITON_ASSERT(!layers_.contains(layer), "layer {} is in the cache already", layer);
  PITON_ASSERT(pages_.size() == 0, "layer {} of a cache that has pages", layer);
  layers_[layer] = {.dtype = dtype, .groups = groups, .head_size = head_size};
}

void KvCache::add_latent_layer(std::int64_t layer, DType dtype, std::int64_t latents,
                               std::int64_t shared) {
  PITON_ASSERT(takes_latents_, "layer {}: latents in a cache without them", layer);
  add_layer(layer, dtype, 1, latents + shared);
  layers_[layer].of_latents = true;
}

void KvCache::add_state_layer(std::int64_t layer, const StateShape& shape) {
  PITON_ASSERT(!states_.contains(layer) && !layers_.contains(layer),
               "layer {} is in the cache already", layer);
  states_[layer] = {.shape = shape, .view = {}};
}

std::int64_t KvCache::fork(std::int64_t text) {
  const std::int64_t added = pages_.add_text(pages_.table(text), pages_.length(text));
  if (has_states()) forks_.emplace_back(text, added);
  return added;
}

void KvCache::make_states(const Context& context, std::int64_t last) {
  if (!has_states()) return;
  std::int64_t texts = last + 1;
  for (const auto& [from, to] : forks_) texts = std::max(texts, to + 1);
  if (texts > texts_with_states_) {
    const auto grown = [&](DType dtype, const Shape& shape, const Tensor& before) {
      const Tensor all = arena_->allocate(dtype, shape, MemoryKind::kActivations);
      if (before.defined())
        context.device.copy(all.slice(0, 0, texts_with_states_), before, context.stream);
      return all;
    };
    for (auto& [layer, one] : states_) {
      const StateShape& s = one.shape;
      StateView& view = one.view;
      view.rows = grown(s.dtype, {texts, s.rows, s.channels}, view.rows);
      if (s.shared_channels > 0)
        view.shared_rows = grown(s.dtype, {texts, s.rows, s.shared_channels}, view.shared_rows);
      if (s.heads > 0)
        view.states = grown(sum_dtype(s.dtype), {texts, s.heads, s.keys, s.values}, view.states);
    }
    texts_with_states_ = texts;
    memory_ = std::make_shared<char>();
  }
  // In their order: a text may be one that was forked, and whose number another has now.
  for (const auto& [from, to] : forks_) {
    for (auto& [layer, one] : states_) {
      one.for_each([&, from = from, to = to](const Tensor& all) {
        context.device.copy(all.slice(0, to, 1), all.slice(0, from, 1), context.stream);
      });
    }
  }
  forks_.clear();
}

void KvCache::grow(const Context& context, std::int64_t pages) {
  PITON_ASSERT(!is_open_, "a cache grows between passes");
  const std::int64_t before = pages_.size();
  pages_.grow(pages);
  memory_ = std::make_shared<char>();
  // The rows of one head are contiguous in a page, so attention reads them one after another.
  const auto grown = [&](DType dtype, const Shape& shape, const Tensor& from) {
    const Tensor to = arena_->allocate(dtype, shape, MemoryKind::kActivations);
    if (before > 0)
      context.device.copy(to.slice(0, 0, before), from.swap_dims(1, 2), context.stream);
    return to.swap_dims(1, 2);
  };
  const bool coded = numbers_ == CacheNumbers::kInt8;
  for (auto& [index, layer] : layers_) {
    const Shape rows{pages, layer.groups, kCachePage, layer.head_size};
    const DType dtype = coded ? DType::kU8 : layer.dtype;
    layer.keys = grown(dtype, rows, layer.keys);
    if (!layer.of_latents) layer.values = grown(dtype, rows, layer.values);
    if (!coded) continue;
    const Shape scales{pages, layer.groups, kCachePage};
    layer.key_scales = grown(DType::kF32, scales, layer.key_scales);
    layer.value_scales = grown(DType::kF32, scales, layer.value_scales);
  }
}

std::int64_t KvCache::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [index, layer] : layers_)
    layer.for_each([&](const Tensor& tensor) { bytes += tensor.bytes(); });
  for (const auto& [index, layer] : states_)
    layer.for_each([&](const Tensor& tensor) { bytes += tensor.bytes(); });
  return bytes;
}

PassTensors KvCache::open(const Context& context, std::span<const CachePass> texts,
                          const PassInput& input, const PassPlace& place) {
  PITON_ASSERT(!is_open_ && !texts.empty(), "a pass of {} texts", texts.size());
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> begins{0};
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> numbers;  // of texts, which are those of their states
  std::vector<std::pair<std::int32_t, std::int32_t>> copies;
  std::size_t longest = 0;
  rows_ = {};
  samples_.clear();
  positions_.clear();
  angle_lengths_.clear();
  for (const CachePass& one : texts) {
    PITON_ASSERT(one.tokens > 0, "a pass of {} tokens of text {}", one.tokens, one.text);
    const std::int64_t length = pages_.length(one.text);
    const std::int64_t begin = one.from.value_or(length);
    const std::int64_t end = begin + one.tokens;
    PITON_ASSERT(begin <= length, "row {} of a text of {} tokens", begin, length);
    PITON_ASSERT(!has_states() || begin == length, "rows of a text again, from {}", begin);
    pages_.append(one.text, std::max<std::int64_t>(0, end - length), copies);
    const std::vector<std::int32_t>& table = pages_.table(one.text);
    for (std::int64_t position = begin; position < end; ++position) {
      slots.push_back(static_cast<std::int32_t>(
          table[static_cast<std::size_t>(position / kCachePage)] * kCachePage +
          position % kCachePage));
      positions_.push_back(static_cast<std::int32_t>(position));
      angle_lengths_.push_back(std::max(one.whole, position + 1));
      rows_.pairs += static_cast<double>(position + 1);
    }
    samples_.push_back({.begin = begins.back(), .rows = one.tokens, .keys = end, .pages = table});
    begins.push_back(static_cast<std::int32_t>(slots.size()));
    lengths.push_back(static_cast<std::int32_t>(end));
    if (has_states()) numbers.push_back(static_cast<std::int32_t>(one.text));
    longest = std::max(longest, table.size());
  }
  if (place.pages > 0) {
    PITON_ASSERT(std::cmp_less_equal(longest, place.pages), "a text of {} pages, wanted {}",
                 longest, place.pages);
    longest = static_cast<std::size_t>(place.pages);
  }
  std::vector<std::int32_t> table;
  for (const CachePass& one : texts) {
    const std::vector<std::int32_t>& pages = pages_.table(one.text);
    table.insert(table.end(), pages.begin(), pages.end());
    table.resize(table.size() + longest - pages.size(), 0);
  }
  const auto n = std::ssize(slots);
  const auto b = std::ssize(texts);
  JoinedArrays arrays;
  const std::size_t places = arrays.add(slots);
  const std::size_t ends = arrays.add(begins);
  const std::size_t sizes = arrays.add(lengths);
  const std::size_t tables = arrays.add(table);
  const std::size_t text_numbers = arrays.add(numbers);
  const std::size_t tokens = arrays.add(input.tokens);
  const std::size_t positions = arrays.add(positions_);
  const std::size_t wanted = arrays.add(input.wanted);
  arrays.upload(context, place.integers);
  rows_.slots = arrays.tensor(places);
  rows_.begins = arrays.tensor(ends);
  rows_.lengths = arrays.tensor(sizes);
  rows_.table = arrays.tensor(tables).reshape({b, static_cast<std::int64_t>(longest)});
  rows_.samples = samples_;
  copy_pages(context, copies);
  if (has_states()) {
    texts_ = {
        .begins = rows_.begins, .lengths = rows_.lengths, .slots = arrays.tensor(text_numbers)};
    make_states(context, *std::ranges::max_element(numbers));
  }
  if (source_.given()) source_.open(context, n);
  is_open_ = true;
  return {arrays.tensor(tokens), arrays.tensor(positions), arrays.tensor(wanted)};
}

void KvCache::copy_pages(const Context& context,
                         std::span<const std::pair<std::int32_t, std::int32_t>> copies) {
  const auto copy = [&](const Tensor& all, std::int32_t from, std::int32_t to) {
    const Tensor pages = all.swap_dims(1, 2);
    context.device.copy(pages.slice(0, to, 1), pages.slice(0, from, 1), context.stream);
  };
  for (const auto& copied : copies) {
    for (const auto& [index, layer] : layers_) {
      layer.for_each([&](const Tensor& tensor) { copy(tensor, copied.first, copied.second); });
    }
  }
}

CacheView KvCache::layer(std::int64_t layer) const {
  PITON_ASSERT(is_open_, "layer {} of a cache outside of a pass", layer);
  const Layer& one = layers_.at(layer);
  return {one.keys, one.values, rows_, one.key_scales, one.value_scales};
}

StateView KvCache::state_layer(std::int64_t layer) const {
  PITON_ASSERT(is_open_, "layer {} of a cache outside of a pass", layer);
  StateView view = states_.at(layer).view;
  view.texts = texts_;
  return view;
}

void KvCache::close() {
  is_open_ = false;
  rows_ = {};
  texts_ = {};
}

}  // namespace piton
