#!/usr/bin/env bash
# Prints the option by which CMake finds Apache Arrow, with which Parquet files are read: nothing where it is
# installed, as a package or with the pyarrow that python3 imports; else the folder of a pyarrow wheel in build/arrow,
# which this puts there with pip. Nothing outside of build/ changes. Without pip or a network Piton is built without.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$root/build/arrow/pyarrow
complete() { compgen -G "$wheel/libarrow.so.*" >/dev/null && compgen -G "$wheel/libparquet.so.*" >/dev/null; }
if ! complete; then
  pkg-config --exists arrow parquet 2>/dev/null && exit 0
  python3 -c 'import pyarrow' 2>/dev/null && exit 0
  if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "piton: no pip: Parquet files will not be read (apt-get install python3-pip, then make again)" >&2
    exit 0
  fi
  echo "piton: fetching Apache Arrow, to read Parquet files" >&2
  rm -rf "$root/build/arrow" "$root/build/arrow.part"
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --retries 1 --timeout 10 \
    --target "$root/build/arrow.part" pyarrow >&2 && mv "$root/build/arrow.part" "$root/build/arrow"
  rm -rf "$root/build/arrow.part"
fi
if complete; then
  echo "-DPITON_PYARROW=$wheel"
else
  echo "piton: Apache Arrow could not be fetched: Parquet files will not be read (make again with a network)" >&2
fi
