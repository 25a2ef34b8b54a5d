#!/usr/bin/env bash
# System packages EvoTrainer uses, installed where we may; otherwise named, and what is lost without them.
#   bubblewrap           the sandbox (tier A); without it untrusted programs run in a weaker tier, printed at start
#   chromium, driver     only with --dev: the report's tests in a real browser (skipped with a message without)
set -u
want=()
command -v bwrap >/dev/null 2>&1 || want+=(bubblewrap)
if [ "${1:-}" = "--dev" ]; then
  command -v chromium >/dev/null 2>&1 || want+=(chromium)
  command -v chromedriver >/dev/null 2>&1 || want+=(chromium-driver)
fi
[ ${#want[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "evotrainer: missing system packages: ${want[*]} (no apt-get here: install them with your package manager)" >&2
  exit 0
fi
run=()
if [ "$(id -u)" -ne 0 ]; then
  if sudo -n true 2>/dev/null; then run=(sudo -n); else
    echo "evotrainer: missing system packages: ${want[*]}. Run: sudo apt-get install ${want[*]}" >&2
    echo "evotrainer: going on without them; 'evotrainer doctor' says what is lost" >&2
    exit 0
  fi
fi
echo "evotrainer: installing system packages: ${want[*]}"
export DEBIAN_FRONTEND=noninteractive
"${run[@]}" apt-get update -qq >/dev/null 2>&1
"${run[@]}" apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null 2>&1 ||
  echo "evotrainer: could not install ${want[*]}; going on without ('evotrainer doctor' says what is lost)" >&2
exit 0
