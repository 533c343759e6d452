#include "session/quantized_parameters.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "nn/adapters.h"
#include "nn/expert_mlp.h"

namespace piton {
namespace {

constexpr const char* kHead = "head.weight";

bool is_head(const Parameter& parameter) {
  return parameter.is_table && parameter.pieces.size() == 1 && parameter.pieces[0].name == kHead &&
         parameter.contributions < 2;
}

bool is_matrix_of_model(const Parameter& parameter) {
  return parameter.is_matrix() && std::ranges::none_of(parameter.pieces, [](const Piece& piece) {
           return is_adapter_tensor(piece.name) || is_router_tensor(piece.name);
         });
}

// Whether the columns of a piece are whole groups, or those of the last and shorter group.
bool whole_groups(const CodeFormat& format, const Piece& piece) {
  // Of a whole row any part, as long as no byte is split.
  const bool halves = is_half_byte(code_kind(format));
  const std::int64_t columns = std::max<std::int64_t>(block_columns(format), halves ? 2 : 1);
  const std::int64_t end = piece.start[1] + piece.extent[1];
  return piece.start[1] % columns == 0 && (end % columns == 0 || end == piece.global[1]);
}

// That of a matrix: GGUF files have rows of other sizes than whole blocks of 256 in Q8_0.
CodeFormat format_of(const CodeFormat& format, const std::string& flag,
                     const Parameter& parameter) {
  if (!is_k_format(format)) return format;
  const bool whole = std::ranges::all_of(parameter.pieces, [&](const Piece& piece) {
    return piece.global[1] % block_columns(format) == 0;
  });
  return whole ? format : *code_format(flag, "q8_0");
}

}  // namespace

CodesOfParameter codes_in(const CodeFormat& format, const std::string& flag) {
  const CodeFormat of_head = *code_format(flag, is_k_format(format) ? "q6_k" : "q8_0");
  return [=](const Parameter& parameter) -> std::optional<CodeFormat> {
    const bool head = is_head(parameter) && is_ggml_format(format);
    if (!head && !is_matrix_of_model(parameter)) return std::nullopt;
    const CodeFormat chosen = format_of(head ? of_head : format, flag, parameter);
    for (const Piece& piece : parameter.pieces) {
      if (head || whole_groups(chosen, piece)) continue;
      throw Error(Fault::kUsage,
                  "{} {}: a rank has {} columns of {}, wanted whole groups of {}; use fewer tensor "
                  "ranks or another format",
                  flag, name(chosen.rule), piece.extent[1], piece.name, block_columns(chosen));
    }
    return chosen;
  };
}

CodesOfParameter codes_stored_in(const TensorSource& source) {
  return [&source](const Parameter& parameter) -> std::optional<CodeFormat> {
    if (!is_matrix_of_model(parameter) && !is_head(parameter)) return std::nullopt;
    std::optional<CodeFormat> format;
    for (const Piece& piece : parameter.pieces) {
      const std::optional<CodeFormat> one = source.stored_format(piece.name);
      if (!one || (format && format != one) || !whole_groups(*one, piece)) return std::nullopt;
      format = one;
    }
    return format;
  };
}

void hold_as_codes(const std::vector<Parameter*>& parameters, const CodesOfParameter& codes,
                   Arena& arena) {
  for (Parameter* parameter : parameters) {
    const std::optional<CodeFormat> format = codes(*parameter);
    if (!format) continue;
    parameter->code_format = format;
    parameter->codes = allocate_codes(*format, parameter->shape[0], parameter->shape[1], arena);
  }
}

}  // namespace piton
