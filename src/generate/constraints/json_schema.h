// JSON Schema as a grammar: every text of it is JSON that the schema accepts.
//
// The subset of OpenAI's structured outputs, and what follows easily: type (also a list), enum,
// const, anyOf, oneOf, allOf (merged_schema.h), $ref within the schema (recursive too), $defs;
// properties, required, additionalProperties; items, prefixItems, minItems, maxItems; minLength,
// maxLength, pattern, format (date, time, date-time, uuid, ipv4, email); minimum, maximum,
// exclusiveMinimum, exclusiveMaximum. Annotations (title, description, default, discriminator, ...)
// mean nothing. Every other keyword is an error: it would be violated silently. oneOf is read as
// anyOf: where its alternatives overlap, a text may satisfy several.
//
// The texts are fewer than the schema accepts: properties come in the order of the schema, an
// object with declared properties has no others, a schema without "type" whose keywords belong to
// one type has that type, and white space is a blank, or a line break and at most 16 blanks.
#pragma once

#include <string_view>

#include "base/json.h"
#include "generate/constraints/byte_grammar.h"

namespace piton {

// Throws Error(kUsage), beginning with `where` and the place in the schema ("schema:
// /properties/age: ..."), for keywords that are unknown or not supported, values of wrong type,
// references to nothing, and schemas that nothing satisfies.
ByteGrammar json_schema_grammar(const nlohmann::ordered_json& schema, std::string_view where);

// Any JSON object.
ByteGrammar json_object_grammar();

}  // namespace piton
