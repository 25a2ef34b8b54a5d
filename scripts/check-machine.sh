#!/usr/bin/env bash
# What `make quickstart` needs of a machine, named before pip tries: bash scripts/check-machine.sh [PYTHON] [FOLDER]
#   Python 3.11 or later with venv, make, free disk where FOLDER lies (default: here), memory
# Ends with 1 where something is missing; a small memory is only said.
set -u
python=${1:-python3}
folder=${2:-.}
disk_gb=${EVOTRAINER_DISK_GB:-4}     # the virtual environment (2.8 GB with all extras and a CPU build of PyTorch), a run
memory_gb=${EVOTRAINER_MEMORY_GB:-3} # two trials at a time, under 0.9 GB each, and the driver
missing=0
lack() {
  echo "evotrainer: $1" >&2
  missing=1
}

[ "$(uname -s)" = Linux ] || lack "this is $(uname -s); needed: Linux (on macOS or Windows: a container, a virtual machine or WSL 2)"
command -v make >/dev/null 2>&1 || lack "make is missing. Install it: sudo apt-get install make"

if ! command -v "$python" >/dev/null 2>&1; then
  lack "$python is not there; needed: Python 3.11 or later. Install it (sudo apt-get install python3.11 python3.11-venv), then: make quickstart PYTHON=python3.11"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo "that does not run")
  lack "$python is Python $found; needed: 3.11 or later. Name another one: make quickstart PYTHON=python3.11"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  lack "$python cannot make virtual environments. Install its venv package: sudo apt-get install python3-venv"
fi

free_gb=$(($(df -Pk "$folder" 2>/dev/null | awk 'NR==2 {print $4}' || echo 0) / 1048576))
[ "$free_gb" -ge "$disk_gb" ] || lack "${free_gb} GB of disk are free in $(cd "$folder" && pwd); needed: ${disk_gb} GB"

memory_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo 2>/dev/null)
if [ -n "$memory_mb" ] && [ "$memory_mb" -lt $((memory_gb * 1024)) ]; then
  echo "evotrainer: ${memory_mb} MB of memory are available, ${memory_gb} GB are advised: close programs, or give run.workers=1" >&2
fi
exit $missing
