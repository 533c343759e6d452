// Keys and values of the tokens of texts, for each layer of a stage, in pages (nn/cache_pages.h);
// of layers with a state of fixed size, the state of each text.
//
// A pass runs the model on tokens that follow those in the cache: any number of any of the texts.
// open() starts it; each layer writes its keys and values and attends to those of each text;
// close() ends it. Kernels read the places of rows from the device.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nn/cache_pages.h"
#include "nn/source_cache.h"
#include "ops/attention.h"
#include "ops/recurrent/delta_rule.h"

namespace piton {

// The rows of one text in a pass.
struct CachePass {
  std::int64_t text = 0;
  std::int64_t tokens = 0;
  // Where rotary angles depend on the length of a text, a row has those of a text of
  // max(whole, position + 1) tokens.
  std::int64_t whole = 0;
  // The position of the first row: the text has as many tokens, or more. Rows that it has are
  // written again, in layers that only later passes run. Nothing: after its tokens.
  std::optional<std::int64_t> from = {};
};

// What a cache holds.
enum class CacheNumbers : std::uint8_t {
  kOfModel,  // keys and values in the model's type
  kInt8,     // as integers of 8 bits, with a scale for each token and head
};

// What else a pass reads, in one upload with the rows of the cache.
struct PassInput {
  std::span<const std::int32_t> tokens = {};  // ids of the rows
  std::span<const std::int32_t> wanted = {};  // numbers of rows
};

// The same on the device.
struct PassTensors {
  Tensor tokens;     // int32 [n]
  Tensor positions;  // int32 [n]
  Tensor wanted;     // empty if there are none
};

// Where a pass has its integers, for one whose work is recorded. Empty: new memory, and as many
// pages a text as the longest has.
struct PassPlace {
  Tensor integers;         // int32 [integers_of() or more]
  std::int64_t pages = 0;  // of a row of the table: at least those of the longest text
};

class KvCache {
 public:
  // A cache without layers and pages. Chunks add their layers (Chunk::add_layers).
  // `takes_latents`: Kernels::attends_to_latents() for all such layers. If not, layers with latents
  // add keys and values.
  explicit KvCache(Arena& arena, CacheNumbers numbers = CacheNumbers::kOfModel,
                   bool takes_latents = false)
      : arena_(&arena), numbers_(numbers), takes_latents_(takes_latents), source_(arena) {}
  // `layer`: index among the layers of the whole model. `groups`: key-value heads of this rank,
  // g/t. Before the first page.
  void add_layer(std::int64_t layer, DType dtype, std::int64_t groups, std::int64_t head_size);
  // A layer of latents of c channels, and r channels that keys have in common
  // (nn/cached_latents.h); the same rows on every tensor rank.
  bool takes_latents() const { return takes_latents_; }
  void add_latent_layer(std::int64_t layer, DType dtype, std::int64_t latents, std::int64_t shared);
  // A layer with states: the rows before a convolution that reads w rows, and matrices of heads.
  struct StateShape {
    DType dtype = DType::kF32;
    std::int64_t rows = 0;             // w - 1
    std::int64_t channels = 0;         // c
    std::int64_t heads = 0;            // hv; 0: there are no matrices
    std::int64_t keys = 0;             // dk
    std::int64_t values = 0;           // dv
    std::int64_t shared_channels = 0;  // which all ranks have, with a convolution for them
  };
  void add_state_layer(std::int64_t layer, const StateShape& shape);
  // Texts then never forget some of their tokens, nor begin with a part of another text: fork() is
  // of a whole one.
  bool has_states() const { return !states_.empty(); }
  // Grows to `pages` pages; those that exist keep what they hold.
  void grow(const Context& context, std::int64_t pages);

  // What an encoder read, of a model that has one: the same for all texts.
  SourceCache& source() { return source_; }
  const SourceCache& source() const { return source_; }

  // Texts and who holds which page. Append only by open().
  CachePages& pages() { return pages_; }
  const CachePages& pages() const { return pages_; }
  // Before a pass of these texts, the highest of which is `last`: memory for their states, if there
  // are any. open() makes it too, when a pass may be under way that is recorded.
  void make_states(const Context& context, std::int64_t last);
  // Of all layers of this stage, for all pages.
  std::int64_t bytes() const;
  std::int64_t add_text() { return pages_.add_text({}, 0); }
  // A text that begins as `text` does: all of its tokens so far. Copies no page; states when the
  // next pass opens.
  std::int64_t fork(std::int64_t text);

  // Starts a pass, whose rows are those of `texts` in order, and adds new tokens to the lengths.
  // Texts are different, with at least one token each. Asserts that there are enough free pages.
  PassTensors open(const Context& context, std::span<const CachePass> texts,
                   const PassInput& input = {}, const PassPlace& place = {});
  // The integers of a pass over n rows of b texts, all of whose logits a pass gives, with p pages a
  // text.
  static std::int64_t integers_of(std::int64_t n, std::int64_t b, std::int64_t p) {
    return 4 * n + 3 * b + 1 + b * p;
  }
  // Another object after each growth: as long as it is the same, keys and values have the same
  // addresses.
  const std::shared_ptr<const void>& memory() const { return memory_; }
  CacheView layer(std::int64_t layer) const;  // only between open() and close()
  bool is_state_layer(std::int64_t layer) const { return states_.contains(layer); }
  StateView state_layer(std::int64_t layer) const;  // as layer()
  void close();

  // Of the rows of the open pass: the position, and the length of the text whose rotary angles it
  // has.
  std::span<const std::int32_t> positions() const { return positions_; }
  std::span<const std::int64_t> angle_lengths() const { return angle_lengths_; }

 private:
  struct Layer {
    DType dtype = DType::kF32;
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
    bool of_latents = false;  // CacheView
    Tensor keys;              // [pages, kCachePage, g/t, d], a view of [pages, g/t, kCachePage, d]
    Tensor values;            // the same; of latents empty
    // Of codes: fp32 [pages, kCachePage, g/t], a view of [pages, g/t, kCachePage].
    Tensor key_scales;
    Tensor value_scales;

    // Every tensor that exists.
    template <typename Visit>
    void for_each(const Visit& visit) const {
      for (const Tensor* tensor : {&keys, &values, &key_scales, &value_scales})
        if (tensor->defined()) visit(*tensor);
    }
  };
  struct States {
    StateShape shape;
    StateView view;  // without texts
    template <typename Visit>
    void for_each(const Visit& visit) const {
      for (const Tensor* tensor : {&view.rows, &view.shared_rows, &view.states})
        if (tensor->defined()) visit(*tensor);
    }
  };
  void copy_pages(const Context& context,
                  std::span<const std::pair<std::int32_t, std::int32_t>> copies);

  Arena* arena_;
  CacheNumbers numbers_;
  bool takes_latents_;
  SourceCache source_;
  CachePages pages_;
  std::map<std::int64_t, Layer> layers_;
  std::map<std::int64_t, States> states_;
  std::int64_t texts_with_states_ = 0;                        // for how many there is memory
  std::vector<std::pair<std::int64_t, std::int64_t>> forks_;  // from, to, since the last pass
  std::shared_ptr<const void> memory_ = std::make_shared<char>();
  bool is_open_ = false;
  CacheRows rows_;  // of the open pass, as the next ones
  std::vector<CacheSample> samples_;
  TextRows texts_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> angle_lengths_;
};

}  // namespace piton
