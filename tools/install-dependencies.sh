#!/usr/bin/env bash
# Installs what Piton builds with, on a Debian-like machine; does nothing where all is there.
set -eu
packages=(g++ cmake ninja-build make pkg-config ccache
  libdnnl-dev libgomp1 libopenmpi-dev openmpi-bin libcli11-dev libtomlplusplus-dev libfmt-dev
  libspdlog-dev nlohmann-json3-dev libsimdjson-dev libpcre2-dev libicu-dev libzstd-dev zlib1g-dev
  libbz2-dev liblzma-dev libxxhash-dev libcpp-httplib-dev protobuf-compiler libprotobuf-dev
  libgtest-dev libgmock-dev libbenchmark-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "piton: installing ${missing[*]}"
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
