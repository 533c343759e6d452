#!/usr/bin/env bash
# Installs what Piton builds with, on a Debian-like machine; does nothing where all is there. Root
# installs at once; others are asked first, or with --yes not.
set -eu
packages=(g++ cmake ninja-build make pkg-config ccache
  libcli11-dev libtomlplusplus-dev libfmt-dev
  libspdlog-dev nlohmann-json3-dev libsimdjson-dev libpcre2-dev libicu-dev libzstd-dev zlib1g-dev
  libbz2-dev liblzma-dev libxxhash-dev libcpp-httplib-dev libgtest-dev libgmock-dev)
# PITON_MPI=OFF: `piton launch` starts ranks, and mpirun is not needed.
[ "${PITON_MPI:-}" = OFF ] || packages+=(libopenmpi-dev openmpi-bin)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
  if [ "${1:-}" != --yes ]; then
    echo "piton: these packages are missing: ${missing[*]}"
    answer=n
    [ ! -t 0 ] || read -r -p "Install them with sudo? [y/N] " answer
    case $answer in
      y | Y | yes) ;;
      *)
        echo "piton: not installed; run: sudo ${install[*]}" >&2
        exit 1
        ;;
    esac
  fi
fi
echo "piton: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}" -qq >/dev/null
