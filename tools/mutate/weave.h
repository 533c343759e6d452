// Many faults in one source, each behind a separate switch (switch.h), so that one build serves
// them all: mutant schemata (R. H. Untch, A. J. Offutt, M. J. Harrold, "Mutation analysis using
// mutant schemata", ISSTA 1993).
//
//   a relation, an operator    (piton_fault(3) ? (a <= b) : (a < b))    the expression around it
//   a constant                 (piton_fault(4) ? (8) : (7))
//   a condition                if ((piton_fault(5) ? (!(x)) : (x)))
//   a call                     { if (!piton_fault(6)) { f(x); } }
//
// `constexpr` of a variable that has a fault becomes `const`. What is woven may not compile: where
// a constant is needed, or where the fault itself would not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "faults.h"

namespace piton::mutate {

struct NumberedFault {
  int number = 0;  // what its switch is asked for
  Fault fault;
};

// Lines of the woven text that a fault is on, 1-based, both included; and the name of the variable
// that is no constexpr any more, mostly empty: where that does not compile, the error is elsewhere.
struct Place {
  int number = 0;
  std::size_t first_line = 0;
  std::size_t last_line = 0;
  std::string variable;
};

struct Woven {
  std::string text;
  std::vector<Place> places;
  std::vector<int> left_out;  // faults whose expressions overlap with others', or have raw strings
};

// The lines stay those of `text`, after a first one that includes `switch_header`.
Woven weave(std::string_view text, std::vector<NumberedFault> faults,
            std::string_view switch_header);

}  // namespace piton::mutate
