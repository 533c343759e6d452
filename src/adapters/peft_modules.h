// The modules and parameters of a Hugging Face model that get the adapters of a model, as a folder
// of PEFT names them (adapters/peft_writer.h). Those of experts are parameters
// (adapters/peft_experts.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/peft_experts.h"
#include "adapters/peft_writer.h"
#include "huggingface/places.h"
#include "nn/adapters.h"

namespace piton {

// A name in files, as that of a module of Transformers.
std::string peft_name(const HfFamily& family, const std::string& name);
// hf_places(), by these names.
std::vector<HfPlace> peft_places(const HfFamily& family, const ModelConfig& model);

// The adapter of some rows of a module.
struct PeftPart {
  HfPlace place;  // of its matrix
  std::string a;
  std::string b;
  std::string magnitude;
  AdapterShape shape;
  std::int64_t rows = 0;
};

struct PeftModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  std::vector<PeftPart> parts;
  std::int64_t in = 0;
  std::int64_t out = 0;

  // Where the ranks of each A begin: those that several parts share are there once.
  std::map<std::string, std::int64_t> first_ranks() const {
    std::map<std::string, std::int64_t> first;
    std::int64_t sum = 0;
    for (const PeftPart& part : parts) {
      if (first.emplace(part.a, sum).second) sum += part.shape.rank;
    }
    return first;
  }
  std::int64_t rank() const {
    std::int64_t end = 0;
    for (const PeftPart& part : parts)
      end = std::max(end, first_ranks().at(part.a) + part.shape.rank);
    return end;
  }
  double scale() const { return parts[0].shape.scale; }
  bool has_magnitudes() const { return parts[0].shape.magnitude; }
  std::int64_t adapted_rows() const {
    std::int64_t sum = 0;
    for (const PeftPart& part : parts) sum += part.rows;
    return sum;
  }
};

// A parameter of experts, and what would be the module of each of them.
struct PeftExperts {
  ExpertParameter parameter;
  std::string name;  // of the module with the adapter
  std::vector<PeftModule> experts;
};

// The modules with an adapter, and the names of those of the same kind without one.
struct PeftModules {
  std::vector<PeftModule> adapted;
  std::set<std::string> others;
  std::vector<PeftExperts> of_experts;
  std::set<std::string> other_parameters;  // of experts, without an adapter
};

// Throws Error(kUsage) as check_peft().
PeftModules peft_modules_of(const PeftWritten& written);

// What is adapted, as the configuration has it.
struct PeftTargets {
  std::set<std::string> modules;
  std::set<std::string> parameters;
  // By the names that patterns have.
  std::vector<std::pair<std::string, const PeftModule*>> named;
};

PeftTargets peft_targets_of(const PeftWritten& written, const PeftModules& modules);

}  // namespace piton
