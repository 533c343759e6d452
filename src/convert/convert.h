// Converts a model on disk to another format, file layout or type, and verifies that both are the
// same (convert/verify.h). Streams: memory does not grow with the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "convert/convert_options.h"
#include "convert/verify.h"
#include "model_files/opened_model.h"

namespace piton {

struct ConvertReport {
  ModelFormat from = ModelFormat::kPiton;
  ModelFormat to = ModelFormat::kPiton;
  std::string save;  // what was written
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // of weights that were written
  double seconds = 0;      // without the verification
  std::vector<std::string> notes;
  std::optional<VerifyReport> verified;
  std::int64_t texts = 0;  // for which both tokenizers gave the same ids; 0: one side has none
  // Of a quantized result: what the model computes of the prompt otherwise than the source does.
  std::optional<VerifyReport> quantization;
  std::string adapter_format;  // "peft", "gguf-lora"; "": a model was written
};

// Writes the adapters of --lora-load, or of a run that trained them, as a folder of PEFT or a GGUF
// file, and verifies that both make the same weights of their base. Errors as of convert().
ConvertReport convert_adapters(const Machine& machine, const ConvertOptions& options,
                               Progress& progress);

// Throws as convert() of a model does, for what can be known before it begins; writes nothing.
void check_conversion(const Machine& machine, const ConvertOptions& options);

// Throws Error(kUsage) for options that contradict each other, and Error(kData) for a source that
// cannot be read, a full disk, or a result that differs from the source, and what `progress`
// throws. There is no target then.
ConvertReport convert(const Machine& machine, const ConvertOptions& options, Progress& progress);

}  // namespace piton
