// What a user says of the source in addition to its name: it is compared, never believed. And
// whether it stays what it was.
#pragma once

#include <map>
#include <string>

#include "convert/convert_options.h"
#include "model_files/opened_model.h"
#include "nn/adapters.h"

namespace piton {

// Throws Error(kUsage) naming the first flag (--load-model-type, --type, --src-tensor-model-
// parallel-size, --num-layers and other flags of a model) that contradicts the source.
void check_source(const ConvertOptions& options, const OpenedModel& from);

// The same of --lora-r and --lora-alpha. `adapters`: null where there are none.
void check_adapters(const ConvertOptions& options, const Adapters* adapters);

// Sees whether files of another program's model change while they are read. Those of a checkpoint
// of Piton have hashes instead.
class SourceStamps {
 public:
  explicit SourceStamps(const OpenedModel& from);
  // Throws Error(kData) with the first file that is another now. One that is gone is read to its
  // end as it was.
  void check() const;

 private:
  std::map<std::string, std::string> stamps_;  // by path
};

}  // namespace piton
