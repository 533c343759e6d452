// What a conversion writes, one function a format. Each writes into the folder `draft`, which is
// there, and throws Error(kData) as the source does, for a model that the format cannot hold, and
// where the disk is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "convert/convert_options.h"
#include "convert/opened_model.h"
#include "gguf/ggml_type.h"

namespace piton {

inline constexpr const char* kGgufDraft = "model.gguf";

struct TargetContext {
  const ConvertOptions& options;
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool& threads;
  std::vector<std::string>& notes;  // what a user should know, a line each
};

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
