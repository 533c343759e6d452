// How options divide a model that is written as a checkpoint of Megatron.
#pragma once

#include "convert/convert_options.h"
#include "megatron/format/layout.h"
#include "megatron/format/names.h"
#include "model_files/opened_model.h"

namespace piton {

// The modules whose names the tensors get.
MegatronTree megatron_tree(const ConvertOptions& options, const ModelConfig& model);

// Throws Error(kUsage) for options that contradict each other, or do not divide the model.
MegatronLayout megatron_layout(const ConvertOptions& options, const OpenedModel& from);

}  // namespace piton
