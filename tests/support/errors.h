// Checks the text and the fault of an Error.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace piton {

// Runs `action` and returns the message of the Error that it throws; fails the test if it throws
// none, or one with another fault.
template <typename Action>
std::string message_of(Fault fault, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.fault()), name(fault));
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

}  // namespace piton
