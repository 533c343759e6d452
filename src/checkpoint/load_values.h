// From a source into a model: what must be there, and the runs that this rank holds.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "checkpoint/tensor_source.h"

namespace piton {

// Collective: the model's tensors of one kind on all ranks, by name. Of kOptimizer: none where the
// model has no optimizer.
std::vector<CanonicalTensor> tensors_of(const StoredModel& model, TensorKind kind,
                                        Communicator& ranks);

// Throws Error(kData) that lists tensors of the source that the model lacks, tensors of the model
// that the source lacks, or those of another shape.
void check_tensors(const TensorSource& source, const std::vector<CanonicalTensor>& wanted,
                   TensorKind kind);

// Sets the model's weights, and its optimizer's state where there is one, from a source that was
// checked. Collective: a fault on one rank is thrown on all, and then values are partly set. Each
// rank reads the runs that it stores (ShardedParameters::own_values), straight into its tensors
// where these are host memory. Weights of another floating type are converted.
void load_values(TensorSource& source, const StoredModel& model, const StoreContext& context);

// Collective: compares the source's weights with the model's, then sets them; of an optimizer
// nothing. Throws Error(kData), on all ranks.
void load_weights(TensorSource& source, const StoredModel& model, const StoreContext& context);

}  // namespace piton
