"""The words of the report, in the order a reader meets them."""

from evotrainer.views.words import FLOOR_MEANS, LOOK_FLOOR, RUN_FLOOR, SEED_SD

GLOSSARY: tuple[tuple[str, str], ...] = (
    ("policy", "The model weights in training, with their version."),
    ("recipe", "The complete, hashed description of a training run. One field of it is a factor."),
    (
        "intervention",
        "One factor changed, with a hypothesis that can turn out wrong, a success criterion and a rollback.",
    ),
    ("branch", "A parent plus exactly one intervention: b0 is the starting recipe, b1, b2, … follow."),
    ("trial", "One seeded training of a branch."),
    ("version, champion", "A promoted branch (v0, v1, …), and the current best one."),
    ("rollout", "One recorded attempt at one task."),
    ("group", "The rollouts of one task by one policy; only differences inside a group give a training signal."),
    ("zero-variance group", "A group in which every rollout has the same reward: all failed or all solved."),
    (
        "splits",
        "train: learnt from. search: read to diagnose. gate: read by the judge only. cert: read once, at the end.",
    ),
    ("proxy gap", "The reward component that is paid minus the one that is meant, e.g. visible minus hidden tests."),
    ("layers of evidence", "Score: how good. Signal: does the group give a gradient. Behaviour: what the policy does."),
    ("finding", "A detector's claim about rollouts, with numbers, thresholds and quotes."),
    (
        "harness",
        "The metrics, detectors and thresholds that interpret training, as versions: h0, h1, "
        "… Each says what changed and why.",
    ),
    ("gap", "Something moved, and no finding of the harness says why: what new detectors are mined from."),
    (
        "suspect, confirmed",
        "A new detector that questions a branch is a suspect until an audit which it asked for finds a shortcut.",
    ),
    ("counterfactual audit", "The same policies on the same tasks with one capability closed."),
    ("greedy", "The second reading of every evaluation: one attempt per task that always takes the likeliest token."),
    ("sharpening", "A gain as sampled that greedy decoding does not share: the policy draws more narrowly, no more."),
    ("backtest", "Replay of a proposed change over stored rollouts, before compute is spent."),
    (
        f"{RUN_FLOOR}; {LOOK_FLOOR}",
        f"At a given confidence {FLOOR_MEANS}. Of the run: all trainings so far, 95%. At this look: at the "
        "confidence of one verdict, for its seeds; the effect must be above it.",
    ),
    (SEED_SD, "How far the scores of single trainings of one recipe lie apart. The noise floors follow from it."),
    ("effect", "Branch minus control on the gate split, paired by task, in percentage points, with its interval."),
    ("gate", "One check of the judge."),
    ("promote", "The branch is shown to be better and every gate passed: it becomes a version."),
    ("reject", "Shown not to be better by more than the noise. Kept as negative evidence."),
    ("inconclusive", "The numbers decide neither way with this run's seeds; a new run with more may."),
    ("invalid", "The score rests on a leak, tampering or a bypass; descendants fall with it."),
    ("failed", "Too few trials finished to judge."),
)
