// The adapters of a model: which linears have one, and which parameters of the model itself are
// trained with them (ops/linear/linear_adapter.h has the formula).
//
// An adapter belongs to one canonical matrix, or to several of a column linear, which then share
// its A. Its tensors are canonical as well:
//
//   adapter of           A [r, in]                        B [out, r]
//   one matrix           layers.3.attention.query.lora_a  layers.3.attention.query.lora_b
//   several              layers.3.attention.qkv.lora_a    layers.3.attention.query.lora_b, and .key
//                                                         and .value
//
// Those that several matrices can share, under the names of these sets:
//
//   attention.qkv           query, key, value
//   attention.query_gate    query and its gate (AttentionShape::output_gate)
//   attention.qkv_gate      all four
//   mlp.gate_up             gate, up; so of mlp.shared and of an expert, mlp.experts.7
//   delta.qkv               query, key, value
//   delta.qkv_gate          query, key, value, gate
//   delta.strength_decay    strength, decay
//   delta.input             all six
//   mamba.input             gate, value, key, query, step, which are in two linears
//   short_conv.input        input gate, output gate, value
//
// Of the experts of a layer each has an adapter of a matrix, or none (nn/expert_adapters.h). Their
// ranks and scales are the same.
//
// A is drawn uniformly within 1 / sqrt(in) (PEFT: Kaiming's with a = sqrt 5), B is 0, so a new
// adapter changes nothing. An adapter with magnitudes (DoRA) has one for each row of each matrix,
// layers.3.attention.query.lora_magnitude [out]; new ones are the lengths of the rows of the weight
// (adapters/magnitude_source.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/parameter.h"

namespace piton {

inline constexpr std::string_view kAdapterA = ".lora_a";
inline constexpr std::string_view kAdapterB = ".lora_b";
inline constexpr std::string_view kAdapterMagnitude = ".lora_magnitude";

// Of one adapter, under the name of its matrix or linear ("layers.3.attention.query").
struct AdapterShape {
  std::int64_t rank = 0;  // r
  double scale = 1;
  bool magnitude = false;  // DoRA

  bool operator==(const AdapterShape&) const = default;
};

struct Adapters {
  std::map<std::string, AdapterShape>
      shapes;          // none: the model has no adapters, and all is trained
  double dropout = 0;  // probability, of the input of A
  // Canonical tensors of the model that are trained with them; all others are frozen.
  std::set<std::string> trained;
  // Several adapters in the place of `shapes`: each row of a pass has one of them or none
  // (Context::adapter_rows). Only for inference; they train nothing of the model in full.
  std::vector<Adapters> choices;

  bool operator==(const Adapters&) const = default;
  bool given() const { return !shapes.empty(); }
  // Null: the matrix or linear of this name has none.
  const AdapterShape* find(const std::string& name) const;
  // Whether the parameter is trained: that of an adapter, or all pieces are in `trained`. Without
  // adapters every one is.
  bool train(const Parameter& parameter) const;
  // Sets Parameter::trainable of each, and the rate_group of what follows B.
  void freeze(const std::vector<Parameter*>& parameters) const;
};

// The matrices that the adapter of this name is of: those of a set in the table above, else the one
// matrix itself.
std::vector<std::string> matrices_of(const std::string& adapter);
// The other way, for matrices in any order; nullopt: no adapter is of just these.
std::optional<std::string> adapter_of(const std::vector<std::string>& matrices);

// Of an adapter of the experts of a layer ("layers.3.mlp.experts.down") that of one expert
// ("layers.3.mlp.experts.7.down"), and the other way; others are as they are.
std::string adapter_of_expert(const std::string& adapter, std::int64_t expert);
std::string adapter_of_experts(const std::string& adapter);
// Whether this names one expert.
bool is_expert_adapter(const std::string& adapter);

// Before the names of all tensors of one of Adapters::choices: "choice 3: ".
std::string choice_prefix(std::size_t choice);

// Whether this is A, B or the magnitude of an adapter; else it is a tensor of the model.
bool is_adapter_tensor(std::string_view name);

// The two lists of parameters that are loaded from different places, one after the other: those of
// the model, from the model's files, and what is trained, from the adapter's files. Those of
// Adapters::trained are in both: the second load replaces their values. adapter_parameters() are
// those that the model's files do not have: A, B and magnitudes, which a new run initializes;
// magnitude_parameters() are some of them.
std::vector<Parameter*> base_parameters(const std::vector<Parameter*>& parameters);
std::vector<Parameter*> adapter_parameters(const std::vector<Parameter*>& parameters);
std::vector<Parameter*> magnitude_parameters(const std::vector<Parameter*>& parameters);
std::vector<Parameter*> trained_parameters(const std::vector<Parameter*>& parameters,
                                           const Adapters& adapters);
// Those of one of Adapters::choices.
std::vector<Parameter*> choice_parameters(const std::vector<Parameter*>& parameters,
                                          std::size_t choice);

}  // namespace piton
