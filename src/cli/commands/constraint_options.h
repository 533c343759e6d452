// Options of generate that constrain its texts.
#pragma once

#include <string>
#include <vector>

#include "base/options/options.h"
#include "generate/constraints/grammar_constraint.h"

namespace piton::cli {

struct ConstraintOptions {
  std::string json_schema;
  std::string regex;
  std::vector<std::string> choices;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json-schema",
             "file of a JSON schema: texts are JSON that it accepts (docs/serving.md lists its "
             "keywords)",
             {.placeholder = "FILE"}},
      json_schema);
    v(Option{"regex",
             "texts match this regular expression as a whole",
             {.placeholder = "EXPRESSION"}},
      regex);
    v(Option{"choices",
             "texts are one of these words, or of a list with commas",
             {.placeholder = "A,B"}},
      choices);
  }
  // The option that is given; "" if none is. Throws Error(kUsage) if there are several.
  std::string flag() const;
  // Reads the file of the schema. Throws Error(kData) as read_text_file().
  ConstraintText text() const;
};

}  // namespace piton::cli
