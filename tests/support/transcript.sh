#!/usr/bin/env bash
# transcript.sh [--record] PAGE.md FOLDER: runs every command of a page and compares its output.
#
# In a block that begins with ```console, a line "$ COMMAND" is run in FOLDER, in the order of the
# page; the lines up to the next command or the end of the block are its expected output, stdout and
# stderr together. A line "..." means any number of lines. Numbers with a point, times and
# rates differ between machines and runs, and are not compared. --record writes the output into the
# page instead, except for commands whose expected lines contain "...".
set -u
record=no
[ "$1" = --record ] && { record=yes; shift; }
page=$1
folder=$2
mkdir -p "$folder"

# What may differ: dates, clock times, numbers with a point or an exponent, rates, hashes, versions; and
# the warnings that root gets, and that bash prints in a locale that is not installed.
masked() {
  sed -E -e '/warning: running as root:/d' -e '/^bash: warning: setlocale: /d' -e 's/kernels: cpu: .*/kernels: #/' -e 's/^\[[0-9-]+ [0-9:]+\] //' \
    -e 's/[0-9]+:[0-9]{2}(:[0-9]{2})?/#/g' \
    -e 's/[0-9]+\.[0-9]+(E[-+]?[0-9]+|e[-+]?[0-9]+)?/#/g' \
    -e 's/(tokens per second: |time left: )[0-9]+/\1#/g' \
    -e 's/[0-9]+ (tokens\/s|MB\/s)/# \1/g' \
    -e 's/\b[0-9a-f]{32}\b/#/g' -e 's/[[:space:]]+/ /g' -e 's/ $//'
}

# Whether the lines of $1 are those of $2, in which "..." means any.
matches() {
  awk -v wanted="$2" '
    { got[++count] = $0 }
    END {
      size = split(wanted, want, "\n")
      if (count == 1 && got[1] == "") count = 0  # nothing was printed
      # reach[j]: the first i lines are matched by the first j wanted ones
      for (j = 0; j <= size; ++j) reach[0, j] = (j == 0) || (reach[0, j - 1] && want[j] == "...")
      for (i = 1; i <= count; ++i)
        for (j = 1; j <= size; ++j)
          reach[i, j] = want[j] == "..." ? (reach[i, j - 1] || reach[i - 1, j]) \
                                         : (reach[i - 1, j - 1] && want[j] == got[i])
      exit !reach[count, size]
    }' <<<"$1"
}

failures=0
out=$(mktemp)
command=
wanted=
inside=no

finish() {  # the command that came before
  [ -z "$command" ] && return
  local got
  got=$(cd "$folder" && bash -c "$command" 2>&1 </dev/null)
  if [ "$record" = yes ]; then
    printf '$ %s\n' "$command" >>"$out"
    if grep -qx -- '\.\.\.' <<<"$wanted"; then
      printf '%s\n' "$wanted" >>"$out"
    elif [ -n "$got" ]; then
      printf '%s\n' "$got" >>"$out"
    fi
  elif ! matches "$(masked <<<"$got")" "$(masked <<<"$wanted")"; then
    printf '%s: $ %s\n--- the page has\n%s\n--- printed was\n%s\n' "$page" "$command" "$wanted" "$got"
    failures=$((failures + 1))
  fi
  command=
  wanted=
}

while IFS= read -r line; do
  if [ "$inside" = no ]; then
    [ "$line" = '```console' ] && inside=yes
    printf '%s\n' "$line" >>"$out"
  elif [ "$line" = '```' ]; then
    finish
    inside=no
    printf '%s\n' "$line" >>"$out"
  elif [ "${line:0:2}" = '$ ' ]; then
    finish
    command=${line:2}
  elif [ -z "$command" ]; then
    printf '%s\n' "$line" >>"$out"
  else
    wanted+=${wanted:+$'\n'}$line
  fi
done <"$page"
[ "$record" = yes ] && cp "$out" "$page"
rm -f "$out"
[ "$failures" = 0 ] || { echo "$failures commands print something else"; exit 1; }
