// What a conversion writes, one function a format. Each writes a model that check_target_holds()
// has passed into the folder `draft`, which is there, and throws Error(kData) as the source does,
// and where the disk is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "convert/coded_weights.h"
#include "convert/convert_options.h"
#include "gguf/blocks/ggml_type.h"
#include "model_files/opened_model.h"

namespace piton {

inline constexpr const char* kGgufDraft = "model.gguf";

struct TargetContext {
  const ConvertOptions& options;
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool& threads;
  std::vector<std::string>& notes;  // what a user should know, a line each
  CodedSource* coded = nullptr;     // what ConvertOptions::coded makes of the source
};

// Throws Error(kData) where the format cannot hold the model, naming what it has no words for, and
// Error(kUsage) for flags of a division that the model does not have.
void check_target_holds(const OpenedModel& from, ModelFormat to, const ConvertOptions& options);

void make_huggingface(const std::filesystem::path& draft, const OpenedModel& from,
                      const TargetContext& context);
void make_checkpoint(const std::filesystem::path& draft, const OpenedModel& from,
                     const TargetContext& context);
void make_megatron(const std::filesystem::path& draft, const OpenedModel& from,
                   const TargetContext& context);
// `draft`/model.gguf.
void make_gguf(const std::filesystem::path& draft, const OpenedModel& from,
               const TargetContext& context);

// What --params-dtype and --outtype say; nothing where they are not given.
std::optional<DType> chosen_dtype(const ConvertOptions& options);
std::optional<GgmlType> chosen_ggml_type(const ConvertOptions& options);

}  // namespace piton
