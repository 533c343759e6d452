#include "session/quantized_parameters.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "nn/adapters.h"

namespace piton {
namespace {

constexpr const char* kHead = "head.weight";

bool is_head(const Parameter& parameter) {
  return parameter.is_table && parameter.pieces.size() == 1 && parameter.pieces[0].name == kHead &&
         parameter.contributions < 2;
}

bool is_matrix_of_model(const Parameter& parameter) {
  return parameter.is_matrix() && std::ranges::none_of(parameter.pieces, [](const Piece& piece) {
           return is_adapter_tensor(piece.name);
         });
}

// Whether the columns of a piece are whole groups, or those of the last and shorter group.
bool whole_groups(const CodeFormat& format, const Piece& piece) {
  if (format.group == 0) return true;
  const std::int64_t end = piece.start[1] + piece.extent[1];
  return piece.start[1] % format.group == 0 && (end % format.group == 0 || end == piece.global[1]);
}

}  // namespace

CodesOfParameter codes_in(const CodeFormat& format, const std::string& flag) {
  const bool ggml = format.rule == Quantization::kQ80 || format.rule == Quantization::kQ40;
  return [=](const Parameter& parameter) -> std::optional<CodeFormat> {
    if (is_head(parameter) && ggml) return *code_format(flag, "q8_0");
    if (!is_matrix_of_model(parameter)) return std::nullopt;
    for (const Piece& piece : parameter.pieces) {
      if (whole_groups(format, piece)) continue;
      throw Error(Fault::kUsage,
                  "{} {}: a rank has {} columns of {}, wanted whole groups of {}; use fewer tensor "
                  "ranks or another format",
                  flag, name(format.rule), piece.extent[1], piece.name, format.group);
    }
    return format;
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
    if (parameter->codes.codes.place().kind == DeviceKind::kCuda) {
      throw Error(Fault::kUsage,
                  "weights in {}: --kernels cuda has no products of them; use --kernels cpu",
                  name(format->rule));
    }
  }
}

}  // namespace piton
