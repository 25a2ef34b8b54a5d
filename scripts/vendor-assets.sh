#!/usr/bin/env bash
# Refresh the vendored browser libraries of the report: unmodified release files from the npm registry.
#   scripts/vendor-assets.sh           download, check the pinned checksums, copy
#   scripts/vendor-assets.sh --check   only compare the files in the tree with the checksums in VENDORED.md
set -euo pipefail
cd "$(dirname "$0")/.."
dir=src/evotrainer/views/assets/vendor

# package@version  sha256 of the npm tarball
pins=(
  "uplot@1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d"
  "d3-hierarchy@3.1.3 d0c3dbb2d2fc5273e03289343b3985fadef07b3968ce53d59c957d3949f9d22a"
  "idiomorph@0.8.0 c2b48584153f0167b5c98cb815576338ccd82a97378e53fbf29d139dfd67207e"
)

check() { (cd "$dir" && sed -n 's/^| `\([^`]*\)`.*| `\([0-9a-f]\{64\}\)` |$/\2  \1/p' VENDORED.md | sha256sum --check --strict); }

if [ "${1:-}" = "--check" ]; then check; exit; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for pin in "${pins[@]}"; do
  read -r name sum <<<"$pin"
  tarball=$(cd "$work" && npm pack --silent "$name")
  echo "$sum  $work/$tarball" | sha256sum --check --strict --quiet
  mkdir "$work/${name%@*}"
  tar -xzf "$work/$tarball" -C "$work/${name%@*}" --strip-components=1
done
mkdir -p "$dir"
cp "$work/uplot/dist/uPlot.iife.min.js" "$work/uplot/dist/uPlot.min.css" "$dir/"
cp "$work/uplot/LICENSE" "$dir/uPlot.LICENSE"
cp "$work/d3-hierarchy/dist/d3-hierarchy.min.js" "$dir/"
cp "$work/d3-hierarchy/LICENSE" "$dir/d3-hierarchy.LICENSE"
cp "$work/idiomorph/dist/idiomorph.min.js" "$dir/"
cp "$work/idiomorph/LICENSE" "$dir/idiomorph.LICENSE"
check
