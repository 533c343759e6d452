#!/usr/bin/env bash
# environments.sh BUILD [NAME ...]: the tests of the binary from outside, as BUILD has them, in other
# environments; all that this machine has, or those that are named. --list names them.
#
#   isa-v2, isa-v3 ...  kernels of an older instruction set (PITON_ISA); also the unit tests and those of the kernels
#   user                another user than root, who can write nothing but their own folder
#   terminal            standard input is a terminal, which the program may open
#   no-terminal         standard input is closed, and there is no terminal to open
#   locale-c            the locale C, without UTF-8
#   locale-de           a decimal comma; the locale is made for this test if the system has its source
#
# TESTS=REGEX runs tests of these names alone; JOBS at a time.
set -u
[ $# -ge 1 ] && [ -f "$1/CTestTestfile.cmake" ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd)
shift
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${JOBS:-$(nproc)}
# All in one place, which another user can reach.
work=$(mktemp -d "${TMPDIR:-/tmp}/piton-environments.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

# The environments of this machine; what it has not, and why, on stderr.
environments() {
  local isa
  for isa in $("$build/piton" doctor --json | grep -o 'x86-64-v[0-9a-z-]*' | sort -u); do
    echo "isa-${isa#x86-64-}"
  done
  if [ "$(id -u)" != 0 ]; then
    echo "skipped: user: these tests run as a user already" >&2
  elif ! as_nobody test -r "$root/tools/launch.sh" -a -x "$build/piton"; then
    echo "skipped: user: nobody cannot read $root" >&2
  elif ! as_nobody "$build/piton" --version >/dev/null 2>&1; then  # as where libraries are in a folder of root
    echo "skipped: user: nobody cannot run $build/piton: $(as_nobody "$build/piton" --version 2>&1 | head -n 1)" >&2
  else
    echo user
  fi
  if command -v script >/dev/null; then echo terminal; else echo "skipped: terminal: there is no script(1)" >&2; fi
  printf '%s\n' no-terminal locale-c
  if [ -n "$(german)" ]; then echo locale-de; else echo "skipped: locale-de: there is no such locale" >&2; fi
}
# The name of a German locale.
german() {
  locale -a 2>/dev/null | grep -i -m 1 '^de_.*utf-\?8$' && return
  mkdir -p "$work/locale"
  localedef -i de_DE -f UTF-8 "$work/locale/de_DE.UTF-8" >/dev/null 2>&1
  [ -d "$work/locale/de_DE.UTF-8" ] && echo de_DE.UTF-8
}

# Runs the tests in environment NAME, in a separate folder.
run() {
  local name=$1 folder=$work/$1 labels=commands command=()
  case $name in isa-*) labels='commands|unit|ops' ;; esac
  mkdir -p "$folder"
  # The build's list of tests, with other folders to work in and with time for a busy night.
  sed -E "s#-DWORK=$build/commands/#-DWORK=$folder/commands/#g; s/TIMEOUT \"[0-9]+\"/TIMEOUT 3600/" \
    "$build/CTestTestfile.cmake" > "$folder/CTestTestfile.cmake"
  command=(ctest --test-dir "$folder" -L "^($labels)\$" -LE nightly -R "${TESTS:-.}" -j "$jobs" --output-on-failure)
  case $name in
    isa-*) PITON_ISA=${name#isa-} "${command[@]}" ;;
    user)
      mkdir -p "$folder/home" "$folder/tmp"
      chown -R 65534:65534 "$folder"
      as_nobody env HOME="$folder/home" TMPDIR="$folder/tmp" USER=nobody LOGNAME=nobody "${command[@]}"
      ;;
    terminal) script -qec "${command[*]@Q}" /dev/null ;;
    no-terminal) setsid -w "${command[@]}" <&- ;;
    locale-c) LC_ALL=C LANG=C "${command[@]}" ;;
    locale-de)
      (
        LC_ALL=$(german) || exit 1
        [ ! -d "$work/locale" ] || export LOCPATH=$work/locale
        export LC_ALL
        "${command[@]}"
      )
      ;;
    *) echo "environments: $name: unknown, wanted one of: $(environments 2>/dev/null | paste -sd ' ')" >&2; return 2 ;;
  esac
}

if [ "${1:-}" = --list ]; then
  environments
  exit
fi
[ $# -gt 0 ] || mapfile -t names < <(environments)
failed=()
for name in "${@:-${names[@]}}"; do
  echo "== commands, $name"
  run "$name" || failed+=("$name")
done
[ ${#failed[@]} = 0 ] || { echo "environments: tests fail in: ${failed[*]}" >&2; exit 1; }
