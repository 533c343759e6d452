#!/usr/bin/env bash
# The hook before a commit: formatting of what is staged, and the rules of the sources where they are
# built.  ln -s ../../tools/pre-commit.sh .git/hooks/pre-commit
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
tools/check-format.sh staged || [ $? = 2 ]  # 2: no clang-format 14 here
if [ -x build/tests/repo_all ]; then build/tests/repo_all --gtest_brief=1; fi
