// The adapters of experts in folders of PEFT where the matrices of all experts of a layer are one
// parameter of a module, as in the models of Transformers 5 (`target_parameters`; ParamWrapper in
// peft/tuners/lora/layer.py of PEFT 0.17 to 0.21):
//
//   MODULE.lora_A.weight    [E r, in]: r rows for each expert, one expert after another
//   MODULE.lora_B.weight    [out, r E]: column i E + e is column i of B of expert e
//
// The parameters are gate_up_proj and down_proj of the module "experts", or those of the family's
// files, if experts are one tensor there. Adapters of two parameters of a module are one around the
// other: of the last one in MODULE, of one before it in MODULE.base_layer. Gate and up have one A.
// Rows of B are those of the parameter: first all of gate, or as the files have them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "adapters/peft_config.h"
#include "huggingface/family.h"
#include "model/config.h"
#include "nn/adapters.h"

namespace piton {

// A parameter with a matrix of each expert of a layer, or with several.
struct ExpertParameter {
  std::string module;                 // "model.layers.3.mlp.experts"
  std::string name;                   // "gate_up_proj"
  std::string canonical;              // "layers.3.mlp.experts"
  std::vector<std::string> matrices;  // "gate", "up"
  // Where the rows of each matrix are among those of its expert.
  std::map<std::string, HfPlace> places;
  std::int64_t in = 0;
  std::int64_t rows = 0;  // of each matrix

  std::string path() const { return module + "." + name; }
  std::int64_t out() const { return rows * static_cast<std::int64_t>(matrices.size()); }
  // "layers.3.mlp.experts.7.up".
  std::string matrix_of(const std::string& matrix, std::int64_t expert) const;
  // Of one A for all matrices of an expert: "layers.3.mlp.experts.7.gate_up".
  std::string adapter_of(std::int64_t expert) const;
};

// Those of the layers of a model, the ones of a module in its order. `places`: of the family.
// Empty: the model has no experts.
std::vector<ExpertParameter> expert_parameters(const std::vector<HfPlace>& places,
                                               const ModelConfig& model);

// Whether Transformers 5 has experts as parameters where the files have a tensor for each.
// PEFT then takes the names of their modules (up_proj) for those of experts, whatever has them.
bool joins_experts(const std::vector<HfPlace>& places, const ModelConfig& model);

// The names of the modules that the adapters of these parameters are in, for those of `parameters`
// that `is_adapted` says have one: from the name to the parameter.
template <typename IsAdapted>
std::map<std::string, const ExpertParameter*> modules_of_experts(
    const std::vector<ExpertParameter>& parameters, const IsAdapted& is_adapted) {
  std::map<std::string, const ExpertParameter*> modules;
  std::map<std::string, std::string> names;  // by the module itself, what is around the next one
  for (auto one = parameters.rbegin(); one != parameters.rend(); ++one) {
    if (!is_adapted(*one)) continue;
    std::string& name = names.try_emplace(one->module, one->module).first->second;
    modules[name] = &*one;
    name += ".base_layer";
  }
  return modules;
}

}  // namespace piton
