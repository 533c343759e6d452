#!/usr/bin/env bash
# left-out.sh START: what ctest is told to leave out of the tests of a day that began at START (seconds since 1970).
#
# Building and the sanitized tests are half of it. A machine that took 45 minutes for that would be cut before the end,
# so drills, and tests that repeat others with four ranks, are left to `make nightly`.
set -eu
if [ "$(($(date +%s) - $1))" -gt 2700 ]; then
  echo "a slow machine: tests of four ranks and drills are left out" >&2
  echo "-E ^(ranks4|sockets4|drills)/"
fi
