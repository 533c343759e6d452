#include "ops/context/ring_attention.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "comm/sequence_stretches.h"
#include "ops/computed_again.h"
#include "ops/context/member_blocks.h"

namespace piton {
namespace {

constexpr int kKeysTag = 0;
constexpr int kGradientsTag = 1;

// What a pair of stretches is attended with: the rows of one of this rank's, the keys of any one.
class Pairs {
 public:
  Pairs(StretchPlaces places, AttentionSettings settings, const Communicator& ring,
        std::int64_t rows)
      : places_(std::move(places)), settings_(std::move(settings)), ring_(ring), rows_(rows) {}

  const AttentionSettings& settings() const { return settings_; }
  std::int64_t rows() const { return rows_; }  // of a stretch
  // The number in the sequence of one of the two stretches of a rank.
  int stretch(int rank, int half) const {
    const SequenceStretches of{rank, ring_.size()};
    return half == 0 ? of.first() : of.second();
  }
  int own(int half) const { return stretch(ring_.rank(), half); }

  // Whether any row of one stretch may see any key of another one.
  bool visible(int query, int key) const {
    if (settings_.causal && key > query) return false;
    const std::int64_t nearest = std::max<std::int64_t>((query - key) * rows_ - rows_ + 1, 0);
    if (query > key && settings_.window_before && nearest > *settings_.window_before) return false;
    const std::int64_t ahead = (key - query) * rows_ - rows_ + 1;  // the least j - i
    return !settings_.window_after || ahead <= *settings_.window_after;
  }

  AttentionMask mask(int query, int key, bool dropout) const {
    AttentionMask mask{.causal = settings_.causal,
                       .window_before = settings_.window_before,
                       .window_after = settings_.window_after,
                       .slopes = settings_.slopes};
    if (places_.segments.defined()) {
      mask.query_segments = places_.segments.select(0, query);
      mask.key_segments = places_.segments.select(0, key);
    }
    if (dropout || mask.slopes.defined() || mask.window_before || mask.window_after) {
      mask.query_positions = places_.positions.select(0, query);
      mask.key_positions = places_.positions.select(0, key);
    } else {
      mask.causal = mask.causal && key == query;  // of earlier keys all are visible
    }
    return mask;
  }

 private:
  StretchPlaces places_;
  AttentionSettings settings_;
  const Communicator& ring_;
  std::int64_t rows_;
};

// The rows of one half: [b, 2 n, heads, d] -> [b, n, heads, d].
Tensor half_of(const Tensor& rows, int half) {
  const std::int64_t n = rows.dim(1) / 2;
  return rows.slice(1, half * n, n);
}

// sum += part, in the dtype of `sum`; both contiguous.
void add(const Context& context, const Tensor& sum, const Tensor& part) {
  Tensor wide = part;
  if (part.dtype() != sum.dtype()) {
    wide = context.workspace(sum.dtype(), part.shape());
    copy(context, wide, part);
  }
  context.kernels.run(Add{.y = sum, .a = sum, .b = wide}, context.stream);
}

// Messages to the next rank and from the one before.
class RingMessages {
 public:
  RingMessages(const Context& context, Communicator& ring) : context_(context), ring_(ring) {}

  // The event: `received` has arrived.
  Event pass_on(const Tensor& sent, const Tensor& received, int tag) const {
    const Exchanged events =
        ring_.exchange({{sent, next_in_ring(ring_), tag}}, {{received, before_in_ring(ring_), tag}},
                       context_.stream);
    context_.arena.hold(received, events.received.front().fence());
    context_.arena.hold(sent, events.sent.front().fence());
    return events.received.front();
  }

 private:
  const Context& context_;
  Communicator& ring_;
};

// Keys and values of a rank as they travel: [2 halves, 2, b, n, g, d].
Tensor packed(const Context& context, const Tensor& k, const Tensor& v) {
  const Tensor keys =
      context.workspace(k.dtype(), {2, 2, k.dim(0), k.dim(1) / 2, k.dim(2), k.dim(3)});
  for (const int half : {0, 1}) {
    copy(context, keys.select(0, half).select(0, 0), half_of(k, half));
    copy(context, keys.select(0, half).select(0, 1), half_of(v, half));
  }
  return keys;
}

// visit(owner, its keys) for all ranks, this one first. The keys of the next one travel meanwhile.
void around(const Context& context, Tensor keys, Communicator& ring,
            const std::function<void(int, const Tensor&)>& visit) {
  const RingMessages messages(context, ring);
  const int c = ring.size();
  for (int step = 0; step < c; ++step) {
    const bool last = step + 1 == c;
    Tensor next;
    Event arrived;
    if (!last) {
      next = context.workspace(keys.dtype(), keys.shape());
      arrived = messages.pass_on(keys, next, kKeysTag);
    }
    visit((ring.rank() - step + c) % c, keys);
    if (last) return;
    context.await(arrived);
    keys = std::move(next);
  }
}

struct RingResult {
  Tensor out;     // [b, 2 n, a, d], of the dtype of q
  Tensor lse[2];  // [b, a, n] of each half
};

// The attention of one half of this rank's rows to the keys so far, in fp32 (fp64).
class HalfRows {
 public:
  HalfRows(const Context& context, const Tensor& q, const Pairs& pairs, Dropout dropout)
      : context_(context), q_(q), pairs_(pairs), dropout_(std::move(dropout)) {}

  void attend(int own, int key, const Tensor& keys) {
    const DType sums = sum_dtype(q_.dtype());
    const bool first = !out_.defined();
    const Shape lse_shape{q_.dim(0), q_.dim(2), q_.dim(1)};
    AttentionForward call{
        .out = context_.workspace(q_.dtype(), q_.shape()),
        .lse = first ? context_.activation(sums, lse_shape) : context_.workspace(sums, lse_shape),
        .q = q_,
        .k = keys.select(0, 0),
        .v = keys.select(0, 1),
        .mask = pairs_.mask(own, key, dropout_.probability > 0),
        .scale = pairs_.settings().scale,
        .dropout = dropout_,
        .head_begin = pairs_.settings().head_begin,
        .soft_cap = pairs_.settings().soft_cap};
    context_.kernels.run(call, context_.stream);
    if (!first) {
      context_.kernels.run(
          AttentionMerge{.out = out_, .lse = lse_, .part = call.out, .part_lse = call.lse},
          context_.stream);
      return;
    }
    lse_ = call.lse;
    out_ = call.out;
    if (sums == q_.dtype()) return;
    out_ = context_.workspace(sums, q_.shape());
    copy(context_, out_, call.out);
  }

  const Tensor& out() const { return out_; }
  const Tensor& lse() const { return lse_; }

 private:
  const Context& context_;
  Tensor q_;
  const Pairs& pairs_;
  Dropout dropout_;
  Tensor out_;
  Tensor lse_;
};

struct QueriesKeysValues {
  Tensor q;
  Tensor k;
  Tensor v;
};

RingResult ring_forward(const Context& context, const QueriesKeysValues& rows, const Pairs& pairs,
                        const Dropout& dropout, Communicator& ring) {
  HalfRows halves[2] = {{context, half_of(rows.q, 0), pairs, dropout},
                        {context, half_of(rows.q, 1), pairs, dropout}};
  around(context, packed(context, rows.k, rows.v), ring, [&](int owner, const Tensor& keys) {
    for (const int query : {0, 1}) {
      for (const int key : {0, 1}) {
        const int of_query = pairs.own(query);
        const int of_key = pairs.stretch(owner, key);
        // A row that sees no key of its stretch gets its 0 there.
        if (of_query == of_key || pairs.visible(of_query, of_key))
          halves[query].attend(of_query, of_key, keys.select(0, key));
      }
    }
  });
  for (const HalfRows& half : halves)
    add_sinks(context, pairs.settings().sinks, half.out(), half.lse());
  RingResult result{.out = context.activation(rows.q.dtype(), rows.q.shape()),
                    .lse = {halves[0].lse(), halves[1].lse()}};
  for (const int half : {0, 1}) copy(context, half_of(result.out, half), halves[half].out());
  return result;
}

// Gradients of q, k and v, to be added up in fp32 (fp64).
struct RingGradients {
  Tensor queries[2];  // [b, n, a, d] of each half
  Tensor keys;        // [2 halves, 2, b, n, g, d] of this rank's keys and values
};

// What backward reads of the rows of this rank.
struct RowsOfBackward {
  QueriesKeysValues rows;
  RingResult result;
  Tensor dout;  // [b, 2 n, a, d]
};

// Adds the gradients of one pair of stretches.
void add_pair(const Context& context, AttentionBackward call, const Tensor& queries,
              const Tensor& keys) {
  const Tensor& k = call.k;
  call.dq = context.workspace(call.q.dtype(), call.q.shape());
  const Tensor both = context.workspace(k.dtype(), {2, k.dim(0), k.dim(1), k.dim(2), k.dim(3)});
  call.dk = both.select(0, 0);
  call.dv = both.select(0, 1);
  context.kernels.run(call, context.stream);
  add(context, queries, call.dq);
  add(context, keys, both);
}

RingGradients ring_backward(const Context& context, const RowsOfBackward& of, const Pairs& pairs,
                            const Dropout& dropout, Communicator& ring) {
  const QueriesKeysValues& rows = of.rows;
  const DType sums = sum_dtype(rows.q.dtype());
  const RingMessages messages(context, ring);
  const auto zeros = [&](const Shape& shape) {
    const Tensor tensor = context.workspace(sums, shape);
    context.device.zero(tensor, context.stream);
    return tensor;
  };
  RingGradients gradients;
  for (const int half : {0, 1}) gradients.queries[half] = zeros(half_of(rows.q, half).shape());
  Event arrived;  // of gradients.keys: those of the ranks before
  around(context, packed(context, rows.k, rows.v), ring, [&](int owner, const Tensor& keys) {
    const Tensor own = zeros(keys.shape());
    for (const int query : {0, 1}) {
      for (const int key : {0, 1}) {
        const int of_query = pairs.own(query);
        const int of_key = pairs.stretch(owner, key);
        if (!pairs.visible(of_query, of_key)) continue;
        add_pair(context,
                 {.dout = half_of(of.dout, query),
                  .out = half_of(of.result.out, query),
                  .lse = of.result.lse[query],
                  .q = half_of(rows.q, query),
                  .k = keys.select(0, key).select(0, 0),
                  .v = keys.select(0, key).select(0, 1),
                  .mask = pairs.mask(of_query, of_key, dropout.probability > 0),
                  .scale = pairs.settings().scale,
                  .dropout = dropout,
                  .head_begin = pairs.settings().head_begin,
                  .soft_cap = pairs.settings().soft_cap},
                 gradients.queries[query], own.select(0, key));
      }
    }
    if (gradients.keys.defined()) {
      context.await(arrived);
      add(context, own, gradients.keys);
    }
    gradients.keys = context.workspace(sums, own.shape());
    arrived = messages.pass_on(own, gradients.keys, kGradientsTag);
  });
  context.await(arrived);
  return gradients;
}

// Handles of what the backward of a ring reads.
struct KeptRing {
  Kept q, k, v, out, positions, segments;
  Kept lse[2];

  QueriesKeysValues rows() const { return {q.get(), k.get(), v.get()}; }
  StretchPlaces places() const { return {positions.get(), segments.get()}; }
};

// Goes around again when backward first asks for a result. All ranks ask in the same order.
class RingAgain {
 public:
  RingAgain(const Context& context, KeptRing kept, AttentionSettings settings, Dropout dropout,
            Communicator& ring)
      : context_(context.with_tape(nullptr)),
        kept_(std::move(kept)),
        settings_(std::move(settings)),
        dropout_(std::move(dropout)),
        ring_(ring) {}

  const RingResult& result() {
    if (!result_) {
      const QueriesKeysValues rows = kept_.rows();
      const Pairs pairs(kept_.places(), settings_, ring_, rows.q.dim(1) / 2);
      result_ = ring_forward(context_, rows, pairs, dropout_, ring_);
      kept_ = {};
    }
    return *result_;
  }

 private:
  Context context_;
  KeptRing kept_;
  AttentionSettings settings_;
  Dropout dropout_;
  Communicator& ring_;
  std::optional<RingResult> result_;
};

// Keeps the results, or provides how they are computed again. `rows`: result.out as the next op
// keeps it.
void keep_results(Context& context, KeptRing& kept, const RingResult& result, const Tensor& rows,
                  const std::shared_ptr<RingAgain>& again) {
  Tape& tape = *context.tape;
  if (again == nullptr) {
    kept.out = tape.keep(result.out);
    for (const int half : {0, 1}) kept.lse[half] = tape.keep(result.lse[half]);
    return;
  }
  tape.provide(rows, computed_again([again, shape = rows.shape()] {
                 return again->result().out.reshape(shape);
               }));
  kept.out = Kept(computed_again([again] { return again->result().out; }));
  for (const int half : {0, 1})
    kept.lse[half] = Kept(computed_again([again, half] { return again->result().lse[half]; }));
}

}  // namespace

Value ring_attention(Context& context, const AttentionRows& parts, const StretchPlaces& places,
                     const AttentionSettings& settings, Communicator& ring) {
  const QueriesKeysValues own{parts.q.tensor, parts.k.tensor, parts.v.tensor};
  const Shape shape = own.q.shape();
  PITON_ASSERT(shape[1] % 2 == 0 && places.positions.dim(2) == shape[1] / 2, "{} rows, places {}",
               shape[1], to_string(places.positions));
  Dropout dropout = settings.dropout;
  if (!context.training) dropout.probability = 0;
  const RingResult result =
      ring_forward(context, own, {places, settings, ring, shape[1] / 2}, dropout, ring);
  const Tensor rows = result.out.reshape({shape[0] * shape[1], shape[2] * shape[3]});
  if (context.tape == nullptr) return {rows};
  Tape& tape = *context.tape;
  Value value = tape.output(rows);
  KeptRing kept{.q = tape.keep(own.q),
                .k = tape.keep(own.k),
                .v = tape.keep(own.v),
                .positions = tape.keep(places.positions),
                .segments = tape.keep(places.segments)};
  const auto again = settings.recompute
                         ? std::make_shared<RingAgain>(context, kept, settings, dropout, ring)
                         : nullptr;
  keep_results(context, kept, result, rows, again);
  tape.record([id = value.id, q_id = parts.q.id, k_id = parts.k.id, v_id = parts.v.id, kept,
               settings, dropout, &ring, shape](Backward& backward) {
    const Context& context = backward.context();
    const Tensor dout = backward.take(id);
    if (!dout.defined()) return;
    const RowsOfBackward of{
        .rows = kept.rows(),
        .result = {.out = kept.out.get(), .lse = {kept.lse[0].get(), kept.lse[1].get()}},
        .dout = dout.reshape(shape)};
    const auto sink_rows = [&](int half) {
      return SinkRows{half_of(of.dout, half), half_of(of.result.out, half), of.result.lse[half]};
    };
    add_sink_gradient(context, settings.sinks, {sink_rows(0), sink_rows(1)});
    const RingGradients gradients =
        ring_backward(context, of, {kept.places(), settings, ring, shape[1] / 2}, dropout, ring);
    const auto give = [&](std::int64_t to, const Tensor& like, const auto& half_gradient) {
      const Tensor place = backward.place(to, like.dtype(), like.shape());
      for (const int half : {0, 1}) copy(context, half_of(place, half), half_gradient(half));
      backward.give(to, place);
    };
    give(q_id, of.rows.q, [&](int half) { return gradients.queries[half]; });
    give(k_id, of.rows.k, [&](int half) { return gradients.keys.select(0, half).select(0, 0); });
    give(v_id, of.rows.v, [&](int half) { return gradients.keys.select(0, half).select(0, 1); });
  });
  return value;
}

}  // namespace piton
