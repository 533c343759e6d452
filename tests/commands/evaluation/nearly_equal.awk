# awk -v other=FILE -f nearly_equal.awk FILE
# Exits with 0 if the files have the same text, and numbers that differ by at most 1e-5 of their size or of one: results
# of the same model whose sums were computed in another order. What follows "computation" is not compared.
function fail(line, text) {
  printf "line %d: %s\nother:   %s\n", FNR, line, text
  failed = 1
  exit 1
}
BEGIN { number = "-?[0-9]+\\.[0-9]+(e-?[0-9]+)?" }
/"computation": / { exit }
{
  if ((getline text < other) <= 0) fail($0, "ends")
  line = $0
  rest = text
  while (match(line, number)) {
    a = substr(line, RSTART, RLENGTH)
    before = substr(line, 1, RSTART - 1)
    line = substr(line, RSTART + RLENGTH)
    if (!match(rest, number)) fail($0, text)
    b = substr(rest, RSTART, RLENGTH)
    if (substr(rest, 1, RSTART - 1) != before) fail($0, text)
    rest = substr(rest, RSTART + RLENGTH)
    size = a < 0 ? -a : a
    distance = a < b ? b - a : a - b
    if (distance > 1e-5 * (size > 1 ? size : 1)) fail($0, text)
  }
  if (line != rest) fail($0, text)
}
END { exit failed }
