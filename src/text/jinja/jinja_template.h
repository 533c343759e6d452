// Templates in the language Jinja, as far as chat templates use it.
//
// Results equal those of Jinja 3.1 in Python with the settings of Transformers: a sandbox in which
// nothing can be changed, trim_blocks and lstrip_blocks, loop controls, and {% generation %}.
//
// Supported: text, {{ }}, {% %}, {# #}, raw; if, for (with else, if and unpacking), set (also of
// blocks and of namespaces), macro, call, filter, with, break, continue, generation; all operators,
// slices and calls; all tests; filters except filesizeformat, pprint, random, striptags, urlencode,
// urlize, wordwrap and xmlattr; methods of str, dict, list and tuple except casefold, encode,
// expandtabs, isidentifier, maketrans and translate; range, dict, namespace, raise_exception and
// strftime_now.
// Not supported, and an error where a template uses it: extends, block, include, import,
// autoescape, recursive loops, loop.changed, lipsum, cycler, joiner, self, integers of more than 64
// bits, format specifications in str.format. Methods of a text that is marked `safe` do not escape
// their arguments.
//
// A template has no access to files, the environment or the network. Steps, recursion and memory
// are limited (values/value.h, levels.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/evaluator.h"

namespace piton::jinja {

class JinjaTemplate {
 public:
  // `name`: for messages. Throws Error(kData): "NAME: line 3: ...".
  JinjaTemplate(std::string source, std::string name);

  // Thread-safe. Throws Error(kData) with name and line.
  Rendering render(const Surroundings& surroundings) const;

  bool has_generation() const { return syntax_.has_generation; }
  const std::string& source() const { return source_; }
  const std::string& name() const { return name_; }

 private:
  std::string source_;
  std::string name_;
  Syntax syntax_;
};

// Throws Error(kData), beginning with `where`, for text that is not UTF-8, integers of more than 64
// bits, and more than kMostNested levels.
JinjaValue value_of(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace piton::jinja
