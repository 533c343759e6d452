#include "ops/rotary.h"

#include <utility>

namespace piton {
namespace {

void turn(Context& context, const Tensor& x, const RotarySettings& settings, bool inverse) {
  context.kernels.run(Rotary{.x = x.slice(2, settings.first_channel, 2 * settings.cosine.dim(1)),
                             .positions = settings.positions,
                             .cosine = settings.cosine,
                             .sine = settings.sine,
                             .convention = settings.convention,
                             .inverse = inverse},
                      context.stream);
}

}  // namespace

Value rotary(Context& context, const Value& x, const RotarySettings& settings) {
  if (!settings.cosine.defined()) return x;
  if (context.tape != nullptr) context.tape->overwrite(x.tensor);
  turn(context, x.tensor, settings, false);
  if (context.tape == nullptr) return x;
  Value result = context.tape->in_place_of(x, x.tensor);
  // The tables live as long as the model, so only the positions need to be kept.
  RotarySettings tables = settings;
  tables.positions = {};
  context.tape->record([tables, positions = context.tape->keep(settings.positions),
                        dtype = x.tensor.dtype(), shape = x.tensor.shape(), x_id = x.id,
                        id = result.id](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined() || x_id < 0) return;
    const bool own = dy.storage().use_count() == 1;
    Tensor dx = own ? dy.reshape(shape) : backward.place(x_id, dtype, shape);
    if (dx.raw() != dy.raw()) {
      context.kernels.run(Copy{.dst = dx, .src = dy.reshape(shape)}, context.stream);
    }
    RotarySettings settings = tables;
    settings.positions = positions.get();
    turn(context, dx, settings, true);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace piton
