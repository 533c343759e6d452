#!/usr/bin/env bash
# Says which sources are not as .clang-format wants them; `make format` fixes them.
#   tools/check-format.sh          all sources
#   tools/check-format.sh staged   those of the next commit, as .git/hooks/pre-commit calls it
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$formatter" ] || ! "$formatter" --version | grep -q 'version 14\.'; then
  echo "check-format: clang-format 14 is not here; other versions format differently" >&2
  exit 2
fi
patterns=('src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'include/*.h' 'examples/*.c' 'examples/*.cpp')
if [ "${1:-}" = staged ]; then
  mapfile -t files < <(git diff --cached --name-only --diff-filter=d -- "${patterns[@]}")
else
  mapfile -t files < <(git ls-files -- "${patterns[@]}")
fi
[ ${#files[@]} -eq 0 ] && exit 0

# Many files a process, which takes longer to start than to format one. It also names some that it would not change.
mapfile -t suspects < <(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 64 "$formatter" --dry-run 2>&1 |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
odd=()
for file in "${suspects[@]}"; do
  cmp -s "$file" <("$formatter" "$file") || odd+=("$file")
done
[ ${#odd[@]} -eq 0 ] && exit 0
printf 'not formatted: %s\n' "${odd[@]}" >&2
echo "run: make format" >&2
exit 1
