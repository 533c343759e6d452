// The records of one file of texts with labels, one after another.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "data/instruct/labeled_texts.h"

namespace piton {

// Gives each record of `file` to `use`, as of read_labeled(). Throws Error(kData) that names the
// line of a record that cannot be read, or for which `use` throws.
void for_each_labeled(const std::string& file, const RecordFields& fields, bool needs_label,
                      Log& log, const std::function<void(Conversation)>& use);

}  // namespace piton
