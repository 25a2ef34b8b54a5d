"""Ids of trials and keys of events: the one place where they are made and, where need be, taken apart.

They are contract: a run that is resumed is found again by them.
"""

from __future__ import annotations

RUN = "run"
LIBRARY = "library"
CERTIFIED = "certified"
USER_CODE = "waiting for "
"""How the phase of a trial begins that hangs in a user's own function, which follows."""
CLOSED = "closed"
BASE_TRIAL = "base"


def branch(n: int) -> str:
    """Name of a run's n-th branch; 0 is the starting recipe's."""
    return f"b{n}"


def probe(n: int) -> str:
    """Name of a run's n-th search training, from 1."""
    return f"p{n}"


def version(n: int) -> str:
    """Name, and key, of a run's n-th policy version, from 0."""
    return f"v{n}"


def harness_version(n: int) -> str:
    """Name of the n-th harness version, from 0."""
    return f"h{n}"


def training(branch: str, seed: int) -> str:
    """Trial that trains a branch on a seed."""
    return f"{branch}-s{seed}"


def is_training(trial: str, branch: str) -> bool:
    """Is it a branch's own training, not an evaluation that repeats one?"""
    seed = trial.removeprefix(f"{branch}-s")
    return seed != trial and seed.isdigit()


def certification(trial: str) -> str:
    """Trial that evaluates a trained policy on the cert split."""
    return f"{trial}-cert"


def remainder(trial: str) -> str:
    """What computes the evaluations of a trial that the cache does not have; it is gone once the trial is finished."""
    return f"{trial}-rest"


RECHECK = "-recheck"


def recheck(trial: str, n: int) -> str:
    """Trial that evaluates another one's policy a second time, in round n."""
    return f"{trial}{RECHECK}{n}"


def under(trial: str, knobs: str) -> str:
    """Trial that evaluates another one's policy under other environment knobs: `open`, or what is closed."""
    return f"{trial}-{knobs}"


def with_texts(trial: str, digest: str) -> str:
    """Trial that evaluates another one's policy with a scaffold of its own, named by the hash of its texts."""
    return f"{trial}-texts-{digest}"


def has_own_texts(trial: str) -> bool:
    """Is it one of these?"""
    return "-texts-" in trial


_GUARD = "-guard-"


def guard(trial: str, name: str) -> str:
    """Trial that evaluates another one's policy on a guard."""
    return f"{trial}{_GUARD}{name}"


def guard_of(trial: str) -> str:
    """Guard that a trial evaluates a policy on; empty: none."""
    return trial.rpartition(_GUARD)[2] if _GUARD in trial else ""


def recertified(trial: str, n: int) -> str:
    """A trial's evaluation on cert for the run's n-th certificate, where a shortcut was closed since the last."""
    return f"{trial}{nth(n).replace('/', '-')}"


def intended(trial: str) -> str:
    """A trial is about to start."""
    return f"{trial}/intended"


def finished(trial: str) -> str:
    """A trial ended."""
    return f"{trial}/finished"


def opened(branch: str) -> str:
    """A branch is opened."""
    return f"{branch}/opened"


def control(branch: str) -> str:
    """Branch that is a branch's control at equal compute."""
    return f"{branch}c"


def certified(n: int) -> str:
    """The run's `n`-th certificate, from 1."""
    return f"{CERTIFIED}{nth(n)}"


def closed(n: int) -> str:
    """The run's `n`-th end, from 1: it may go on afterwards."""
    return f"{CLOSED}{nth(n)}"


def nth(look: int) -> str:
    """Suffix of what happens more than once, from 1 (a branch's analyses, a run's ends); empty for the first."""
    return f"/{look}" if look > 1 else ""


def reading(branch: str, look: int = 1, harness: str = "") -> str:
    """Search rollouts are read before interim analysis `look`; `harness`: the version they are read again with."""
    return f"{branch}/read{nth(look)}" + (f"/{harness}" if harness else "")


def branch_read(key: str) -> str:
    """Branch of a reading's key; empty for other keys."""
    branch, slash, rest = key.rpartition("/read")
    return branch if slash and (not rest or rest.startswith("/")) else ""


def noise(branch: str, trials: int = 0) -> str:
    """A branch's spread between seeds joins the noise; `trials`: their number, where seeds were added."""
    return f"noise/{branch}" + (f"/{trials}" if trials else "")


def noise_branch(key: str, first: str) -> str:
    """Branch whose spread between seeds a noise event joined: of `noise/<branch>` and `noise/<branch>/<trials>` the
    branch (a name of ours), of the A/A measurement `noise/<n>` the one it is about, `first`."""
    name = key.split("/")[1]
    return first if name.isdigit() else name


def remeasured(key: str) -> bool:
    """Does a noise event replace the measurement before it, since seeds were added to branches that are in it?"""
    return key.count("/") > 1


def judged(branch: str, look: int) -> str:
    """A verdict."""
    return f"{branch}/judged{nth(look)}"


def topup(branch: str, look: int) -> str:
    """Seeds added before interim analysis number `look`."""
    return f"{branch}/topup/{look}"


def audited(branch: str, capability: str, time: int) -> str:
    """Audit number `time`, from 1, of a branch; `capability`: as a slug."""
    return f"{branch}/audited/{capability}{nth(time)}"


def invalidated(branch: str) -> str:
    """A branch is invalidated."""
    return f"{branch}/invalidated"


def reestimated(branch: str) -> str:
    """A winner is measured on fresh seeds."""
    return f"{branch}/reestimated"


def teaches(key: str, branch: str) -> bool:
    """Is it the key of something that this branch taught?"""
    return key == skill(branch) or key.startswith(skill(branch) + "/")


def probes(n: int, index: int) -> str:
    """Search trainings of a round, batch number `index`, from 0."""
    return f"r{n}/probes/{index}"


def searched(n: int) -> str:
    """A round's search ends."""
    return f"r{n}/searched"


def skill(branch: str, why: str = "") -> str:
    """What a branch taught; `why`: "fresh" or "invalid" where that changed."""
    return f"{branch}/skill" + (f"/{why}" if why else "")


def resumed(n: int) -> str:
    """Somebody resumes the run for the time number `n`, from 1."""
    return f"resumed/{n}"


def gap(branch: str) -> str:
    """A diagnostic gap of a branch."""
    return f"gap/{branch}"


def unexplained_gap(branch: str) -> str:
    """A branch is paid for what is wrong, and no finding says why."""
    return f"gap/{branch}/unexplained"


def learned(branch: str, n: int) -> str:
    """What reading number `n` of a branch teaches; 0: what probes of it do."""
    return gap(at_learned(branch, n))


def at_learned(branch: str, n: int) -> str:
    """Where detectors are mined from what a reader confirmed."""
    return f"{branch}/read/{n}"


def at_unexplained_gap(branch: str) -> str:
    """Where detectors are mined from what a branch is paid for."""
    return f"{branch}/unexplained"


def harness(at: str) -> str:
    """A version of the harness; `at`: opened, or what `at_gap`, `at_unexplained_gap`, `edit` or `settled` say."""
    return f"harness/{at}"


def at_gap(branch: str) -> str:
    """Where detectors are mined from a branch's gap."""
    return f"{branch}/gap"


def settled(when: str) -> str:
    """Where detectors get a new standing, or are retired; `when`: r<n> or end."""
    return f"{when}/settled"


def edit(n: int, index: int, revision: int = 0) -> str:
    """Where an agent's edit of the harness is tried: part of `gap/<at>` and `harness/<at>`."""
    return _of_round(n, f"edit/{index}", revision)


def round_opened(n: int) -> str:
    """Round `n` begins."""
    return f"r{n}/opened"


def in_round(n: int) -> str:
    """Point in a run at which a round's detectors are settled; the run's ends have their own (`at_end`)."""
    return f"r{n}"


def at_end(n: int) -> str:
    """The same at a run's n-th end."""
    return f"end{nth(n)}"


def is_at_end(point: str) -> bool:
    """Is the point one of `at_end`?"""
    return point.startswith("end")


def diagnosed(n: int) -> str:
    """The champion's rollouts are read."""
    return f"r{n}/diagnosed"


def proposed(n: int, revision: int = 0) -> str:
    """The agent's proposal; `revision`: how often it was sent back."""
    return _of_round(n, "proposed", revision)


def revision(key: str) -> int:
    """How often the proposal of a key of `proposed` or `backtested` had been sent back."""
    parts = key.split("/")[2:]  # proposed: revision; backtested: index, revision
    parts = parts[1:] if "/backtested/" in key else parts
    return int(parts[0]) if parts and parts[0].isdigit() else 0


def backtested(n: int, index: int, revision: int = 0) -> str:
    """Intervention number `index` is replayed."""
    return _of_round(n, f"backtested/{index}", revision)


def refused(n: int, index: int) -> str:
    """Intervention number `index` becomes no branch."""
    return f"r{n}/refused/{index}"


def planned(n: int) -> str:
    """The round's branches."""
    return f"r{n}/planned"


def gate(n: int, where: str, branch: str = "", attempt: int = 0) -> str:
    """A human is asked."""
    return f"r{n}/gate/{where}" + (f"/{branch}" if branch else "") + (f"/{attempt}" if attempt else "")


def gate_asked(gate: str, times: int = 0) -> str:
    """What a human is asked at a gate; `times`: how often it was answered with ABORT, and asked again."""
    return f"{gate}/asked" + (f"/{times}" if times else "")


def gate_aborted(gate: str, times: int = 0) -> str:
    """The answer was ABORT."""
    return f"{gate}/aborted" + (f"/{times}" if times else "")


def answer_of(asked: str, aborted: bool) -> str:
    """Key of the answer to a key of `gate_asked`."""
    gate, _, times = asked.rpartition("/asked")
    return gate_aborted(gate, int(times.strip("/") or 0)) if aborted else gate


def escalated(n: int) -> str:
    """Something is tried after failures."""
    return f"r{n}/escalated"


def asked(n: int, step: str, attempt: int) -> str:
    """The seat is asked; `step`: `search` or `proposal` and its number, `attempt` from 0."""
    return f"r{n}/asked/{step}/{attempt}"


def answered(n: int, step: str, attempt: int) -> str:
    """What came of it."""
    return f"r{n}/answered/{step}/{attempt}"


def seat_turn(n: int, step: str, attempt: int) -> str:
    """The request as a name that fits a file: `r1-search4-0`."""
    return f"r{n}-{step}-{attempt}"


def request_of(key: str) -> str:
    """Key of the request that a key of `answered` belongs to."""
    return key.replace("/answered/", "/asked/", 1)


def reader(branch: str, n: int) -> str:
    """Reading number `n`, from 1, of a branch's rollouts by the reader."""
    return f"{branch}/reader/{n}"


def reader_asked(branch: str, n: int, place: int, attempt: int) -> str:
    """The reader is asked about a rollout of a reading; `place` and `attempt` from 0."""
    return f"{reader(branch, n)}/asked/{place}/{attempt}"


def reader_answered(branch: str, n: int, place: int, attempt: int) -> str:
    """What came of it; `request_of` gives the question's key."""
    return f"{reader(branch, n)}/answered/{place}/{attempt}"


def reader_turn(branch: str, n: int, place: int, attempt: int) -> str:
    """Name of a question's files: `b1-reader1-0-0`."""
    return f"{branch}-reader{n}-{place}-{attempt}"


def reader_concluded(branch: str, n: int) -> str:
    """What a reading says."""
    return f"{reader(branch, n)}/concluded"


def _of_round(n: int, what: str, revision: int) -> str:
    return f"r{n}/{what}" + (f"/{revision}" if revision else "")
