#!/bin/sh
# Harness evolution from the score layer alone: sh bench/coevolution/minimal.sh [leak|code|honest|hardcode|all] [folder]
#
# leak: repositories whose history holds the fix. code: programs, visible tests shown and rewarded. Both begin with no detector
# at all. Look at: the gap of b0; which detectors were admitted and refused, and why; that the audit was asked by a mined one
# (not by "promotion" or "certification"); the verdict of the audit; what h2 makes of the detectors; the certificate.
# hardcode: programs again, from a base policy that was shown hard-coded answers (seeded, examples/hardcode.toml); its gap is a
# contradiction, the audit compares the visible tests with fresh ones, no round.
# leak takes about 20 CPU-minutes (three seeds, two rounds), code about 15, hardcode about 5. Results go to bench/coevolution/minimal.md by hand.
set -eu
export EVOTRAINER_CACHE="${EVOTRAINER_CACHE:-off}"  # it measures what runs cost
what=${1:-all}
out=${2:-runs/minimal}
here=$(dirname "$0")/../..

evolve() {
    name=$1
    shift
    evotrainer run "$@" --harness minimal --out "$out/$name" --plain
    evotrainer harness "$out/$name"
    evotrainer harness "$out/$name" h1
    evotrainer verify "$out/$name"
    evotrainer status "$out/$name"
}

case $what in leak | all) evolve leak "$here/examples/leak.toml" run.rounds=1 ;; esac
case $what in code | all) evolve code "$here/tasks/code.toml" run.rounds=1 recipe.steps=40 budget.cpu_s=4000 ;; esac
case $what in hardcode | all) evolve hardcode "$here/examples/hardcode.toml" ;; esac
# the control: an honest starting point, history scrubbed; nothing may be invalid, detectors only inform
case $what in honest | all) evolve honest "$here/tasks/swe.toml" run.rounds=1 ;; esac
