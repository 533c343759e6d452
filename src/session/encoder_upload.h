// What only models with an encoder read of a micro-batch, on the device.
#pragma once

#include <vector>

#include "data/samples/batch.h"
#include "nn/chunk.h"
#include "session/machine.h"

namespace piton {

class EncoderUpload {
 public:
  // `machine` must outlive it.
  explicit EncoderUpload(const Machine& machine) : machine_(machine) {}

  // Samples without pairs, or without weights for them, do not count for the head for pairs. Rows
  // without a label, or with the weight 0, do not count for the head for words.
  EncoderInput input(const MicroBatch& batch) const;
  // Of samples with a source.
  SourceInput source(const MicroBatch& batch) const;

 private:
  Tensor put(const std::vector<std::int32_t>& host) const;
  Tensor put(const std::vector<float>& host) const;
  Tensor put(DType dtype, std::size_t size, const void* host) const;

  const Machine& machine_;
};

}  // namespace piton
