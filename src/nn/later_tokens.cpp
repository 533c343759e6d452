#include "nn/later_tokens.h"

#include "ops/split.h"

namespace piton {

LaterTokenInput::LaterTokenInput(ParameterList& parameters, const Shard& shard,
                                 const std::string& name, const LaterTokenShape& shape)
    : shard_(shard),
      token_norm_(parameters, shard, name + ".token_norm", shape.norm),
      hidden_norm_(parameters, shard, name + ".hidden_norm", shape.norm),
      projection_(
          &parameters.add(replicated_parameter(shard, name + ".projection.weight", shape.norm.width,
                                               2 * shape.norm.width, shape.initialization))) {
  PITON_ASSERT(shard.alone != nullptr, "{}: without the group of one rank", name);
  projection_->contributions += 1;
}

Value LaterTokenInput::forward(Context& context, const Value& tokens, const Value& hidden) const {
  const Value token_rows = token_norm_.forward(context, tokens);
  const Value both = joined_columns(context, token_rows, hidden_norm_.forward(context, hidden));
  return column_linear(context, both, {*projection_, *shard_.alone, {}}, {.output = shard_.dtype});
}

}  // namespace piton
