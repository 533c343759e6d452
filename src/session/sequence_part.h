// The rows of a micro-batch that one rank of the context axis has.
#pragma once

#include "comm/sequence_stretches.h"
#include "data/samples/batch.h"

namespace piton {

// Both stretches of each sample, one after the other: tokens, labels, weights and positions.
// Segments stay those of whole samples. The batch has rows for decoders only; its sequence is a
// multiple of the number of stretches.
MicroBatch part_of_sequence(const MicroBatch& batch, const SequenceStretches& stretches);

// The same of numbers of rows, [b*s] or empty.
std::vector<float> rows_of_part(const std::vector<float>& rows, const MicroBatch& batch,
                                const SequenceStretches& stretches);
std::vector<std::int32_t> rows_of_part(const std::vector<std::int32_t>& rows,
                                       const MicroBatch& batch, const SequenceStretches& stretches);

// The place of each row in its sample, [b*s].
std::vector<std::int32_t> positions_of_rows(const MicroBatch& batch);
// Numbers of the rows of a batch, [b, s] -> [stretches, b, s / stretches].
std::vector<std::int32_t> by_stretch(const std::vector<std::int32_t>& rows, const MicroBatch& batch,
                                     int stretches);

}  // namespace piton
