// Loads a source into a model: which tensors must exist, and the runs of this rank.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/store.h"
#include "checkpoint/tensor_source.h"

namespace piton {

// Collective: the model's tensors of one kind on all ranks, by name. None of kOptimizer if the
// model has no optimizer.
std::vector<CanonicalTensor> tensors_of(const StoredModel& model, TensorKind kind,
                                        Communicator& ranks);

// Whether a weight is of a layer that predicts later tokens. A model without such layers, or with
// fewer, as for inference, reads the rest of one that has them.
inline bool predicts_later_tokens(std::string_view weight) { return weight.starts_with("mtp."); }

// Throws Error(kData) with a list of the tensors that only the source has, that only the model has,
// or that have another shape. Whole layers that predict later tokens may be only the source's.
void check_tensors(const TensorSource& source, const std::vector<CanonicalTensor>& wanted,
                   TensorKind kind);

// Sets the model's weights, and its optimizer's state if there is one, from a checked source.
// Collective: a fault on one rank is thrown on all, and values are then partly set. Each rank reads
// the runs that it stores (ShardedParameters::own_values), directly into its tensors if they are in
// host memory. Weights of another floating type are converted.
void load_values(TensorSource& source, const StoredModel& model, const StoreContext& context);

// Collective: compares the source's weights with the model's, then sets them; ignores optimizer
// state. Throws Error(kData) on all ranks.
void load_weights(TensorSource& source, const StoredModel& model, const StoreContext& context);

// The same with the state of the model's optimizer, which the source then must have too.
void load_weights_and_state(TensorSource& source, const StoredModel& model,
                            const StoreContext& context);

// Fills a parameter that is held as codes, a few rows at a time, so that its values are never in
// memory as a whole. The codes are those of the canonical tensors, however their rows and columns
// are split over ranks: a rank that holds a part of the columns reads whole rows where a scale
// depends on them. Codes for a device are made in host memory, a whole parameter at a time.
// `device`, `stream`: where the codes are. `threads`: null, or those that read and quantize, if the
// source allows it.
// Throws Error(kData) for values that cannot be quantized, and as TensorSource::read().
void load_codes(TensorSource& source, const Parameter& parameter, ThreadPool* threads,
                Device& device, Stream& stream);

}  // namespace piton
