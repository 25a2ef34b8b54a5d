"""The exported champion: transformers loads it and computes the same, the card says what the ledger says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.trainers.reverse_env import logits

from evotrainer import api
from evotrainer.cli.export import export
from evotrainer.errors import ConfigError, IntegrityError
from evotrainer.records import events as ev
from evotrainer.records.durable import sha256_tree
from evotrainer.records.interventions import Intervention, Prediction
from evotrainer.records.ledger import Ledger
from evotrainer.records.recipe import Recipe
from evotrainer.records.verdicts import Verdict
from evotrainer.records.weights import weights_sha256
from evotrainer.trainers.embedded.folder import load_policy, save_policy
from evotrainer.trainers.embedded.policy import Policy
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import BOS, build_tokenizer

TEXT = "for x in range(3): print(x)\n"
START = Recipe(rewards={"visible": 1.0}, steps=4)
BETTER = START.with_factor("rewards", {"hidden": 1.0})


def policy(folder: Path, seed: int) -> Path:
    tokenizer = build_tokenizer(["print(", "range("], "test-1")
    shape = DecoderShape(len(tokenizer), d=32, layers=2, heads=2, kv_heads=2, hidden=48, context=64)
    save_policy(Policy(shape).init(seed), tokenizer, folder)
    return folder


def finished(run: Path, branch: str, seed: int, search: float, **told: Any) -> ev.TrialFinished:
    trial = f"{branch}-s{seed}"
    made = policy(run / "trials" / trial / "policy", seed)
    return ev.TrialFinished(
        trial=trial,
        branch=branch,
        seed=seed,
        status="complete",
        cpu_s=1.0,
        wall_s=1.0,
        steps=4,
        policy_path=str(made.relative_to(run)),
        policy_sha256="ab" * 32,
        files=sha256_tree(made, run),
        scores=(ev.SplitScore(split="search", step=4, score=search, attempts=1, per_task={}),),
        **told,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """b0, its child b1 (champion, certified on the fresh seeds 11 to 13), and b2, invalid."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "task.toml").write_text(
        '[task]\nname = "code"\n[environment]\nname = "code"\n[recipe.rewards]\nvisible = 1.0\n'
    )
    change = Intervention(
        factor="rewards",
        old={"visible": 1.0},
        new={"hidden": 1.0},
        hypothesis="Paying | hidden <tests> closes the gap.",
        prediction=Prediction(metric="proxy_gap", direction="down", size=0.05),
        success_criterion="gate rises",
        rollback="back to visible",
    )
    row = ev.CertRow
    bodies: list[tuple[str, str, Any]] = [
        ("run", "run", ev.RunOpened(
            run="mine", task="code", task_hash="51d2c0ffee98a7b4", version="0.1.0", seed=0, agent="statistical",
            autonomy="full", budget={}, machine={"cores": "2"}, sandbox_tier="A",
            base_policy={"path": "/home/me/base", "sha256": "cd" * 32}, task_sha256="",
            draw=ev.TaskDraw(mode="fixed", commitment=""),
            environment={"name": "code", "version": "1", "hash": "9f3c1b2a44d05e77",
                         "splits": {"train": 40, "cert": 30},
                         "data": {"source": "hf:org/set@" + "0" * 40, "revision": "0" * 40, "format": "taco"},
                         "files": {"/home/me/x.jsonl": "ef"}, "knobs": {"key": "shut, open"},
                         "capabilities": [{"name": "key", "knob": "key", "open": "open", "closed": "shut"}]})),
        ("branch", "b0/opened", ev.BranchOpened(branch="b0", parent=None, round=0, recipe=START,
                                                recipe_hash=START.hash)),
        ("finished", "b0-s1/finished", finished(folder, "b0", 1, 0.5)),
        ("promoted", "v0", ev.Promoted(version="v0", branch="b0", previous=None)),
    ]  # fmt: skip
    for name in ("b1", "b2"):
        bodies.append(("branch", f"{name}/opened", ev.BranchOpened(
            branch=name, parent="b0", round=1, recipe=BETTER, recipe_hash=BETTER.hash,
            intervention=change)))  # fmt: skip
        bodies.append(("finished", f"{name}-s1/finished", finished(folder, name, 1, 0.99)))
    verdict = Verdict(branch="b1", control="b0", kind="promote", reason="gains 12 points")
    bodies += [
        ("judged", "b1/judged", ev.Judged(round=1, verdict=verdict)),
        ("promoted", "v1", ev.Promoted(version="v1", branch="b1", previous="v0")),
        (
            "invalidated",
            "b2/invalidated",
            ev.Invalidated(branch="b2", descendants=(), reason="reads the fix", champion="b1"),
        ),
    ]
    bodies += [
        ("finished", f"b1-s{s}/finished", finished(folder, "b1", s, q)) for s, q in ((11, 0.9), (12, 0.7), (13, 0.8))
    ]
    bodies += [
        ("certified", "certified", ev.Certified(champion="b1", rows=(
            row(name="base", branch="base", seeds=(0,), score=0.2, low=0.1, high=0.3, per_seed=(0.2,)),
            row(name="champion", branch="b1", seeds=(11, 12, 13), score=0.75, low=0.7, high=0.8,
                per_seed=(0.7, 0.75, 0.8))),
            comparisons={"champion-base": {"mean": 0.55, "low": 0.45, "high": 0.65, "p": 0.0}})),
        ("closed", "closed", ev.RunClosed(reason="done", champion="b1", cpu_s=9, wall_s=9, peak_rss_mb=9)),
    ]  # fmt: skip
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        for kind, id, body in bodies:
            ledger.append(kind, id, body)
    return folder


def card(folder: Path) -> tuple[dict[str, Any], str]:
    _, head, body = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), body


def test_transformers_loads_the_exported_champion_and_gives_the_same_logits(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = api.Run(run).export(tmp_path / "model")
    assert len({f.stat().st_mode for f in out.iterdir() if f.is_file()}) == 1, "another user's server reads them all"
    ours = load_policy(run / "trials" / "b1-s13" / "policy")  # the middle one of 0.9, 0.7, 0.8
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    ids = [BOS, *ours.tokenizer.encode(TEXT)]
    assert tokenizer(TEXT)["input_ids"] == ids
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([ids])).logits[0]
    assert (logits(ours.policy, ids) - theirs).abs().max() < 1e-4
    assert json.loads((out / "generation_config.json").read_text())["do_sample"]


def test_the_card_says_recipe_lineage_certificate_and_how_to_verify(run: Path, tmp_path: Path) -> None:
    out = api.Run(run).export(tmp_path / "model")
    head, text = card(out)
    assert head["library_name"] == "transformers" and "certified" in head["tags"] and "aveat" not in text
    (result,) = head["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == 0.75 and result["dataset"]["split"] == "cert"
    assert "| champion | b1 | 11, 12, 13 | 75.0% | 70.0% to 80.0% | 70.0%, 75.0%, 80.0% |" in text
    assert "Paying \\| hidden &lt;tests> closes the gap." in text
    assert "the middle one on search of 3 certified trainings" in text
    last = api.Run(run).events()[-1].hash
    assert last in text and f"evotrainer verify mine --head {last[:16]}" in text
    assert "revision `0000" in text
    whole = text + (out / "evotrainer.json").read_text()
    assert "/home/me" not in whole and str(tmp_path) not in whole  # nothing of the machine it ran on
    body = json.loads((out / "evotrainer.json").read_text())
    assert body["recipe"]["rewards"] == {"hidden": 1.0} and body["ledger"]["head"] == last
    assert [x["branch"] for x in body["lineage"]] == ["b0", "b1"]


def test_an_invalid_branch_is_refused_and_exported_only_under_that_name(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="branch b2 is invalid: reads the fix; .*--anyway"):
        export(run, tmp_path / "a", branch="b2")
    assert not (tmp_path / "a").exists()
    export(run, tmp_path / "a", branch="b2", anyway=True)
    head, text = card(tmp_path / "a")
    assert "invalid" in head["tags"] and "model-index" not in head
    assert "> **INVALID.** reads the fix" in text


def test_what_is_not_certified_says_so(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(run, tmp_path / "a", branch="v0")
    head, text = card(tmp_path / "a")
    assert "not-certified" in head["tags"] and "model-index" not in head
    assert "> **Not certified:** the certificate is about other branches" in text
    assert "branch b0 (not certified), trial b0-s1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"branch": "b9"}, "no branch 'b9' .*; there are: base, b0, b1, b2"),
        ({"seed": 5}, "branch b1 has no trained policy with seed 5; it has: 1, 11, 12, 13"),
        ({"branch": "base"}, "has no base policy yet"),
    ],
)
def test_what_is_not_there_is_named(run: Path, tmp_path: Path, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        api.Run(run).export(tmp_path / "a", **how)


@pytest.mark.parametrize("name", ["b1", "b2", "v1", "base"])
def test_a_branch_in_the_place_of_the_folder_is_answered(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} stands where the folder to write .* DIR --branch {name}"):
        export(run, Path(name))
    assert not Path(name).exists()


def test_a_folder_named_like_a_branch_that_is_not_there_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export(run, Path("v7"))
    assert (tmp_path / "v7" / "README.md").is_file()


def test_a_copy_of_a_run_without_its_policies_says_so(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("policy"))
    with pytest.raises(ConfigError, match="holds no policy at all .*: a copy without them; export the run itself"):
        api.Run(copy).export(tmp_path / "a", branch="b1")


def test_a_certified_training_without_its_policy_is_missed(run: Path, tmp_path: Path) -> None:
    """The middle one of the two that are left would be another one than the certificate's."""
    shutil.rmtree(run / "trials" / "b1-s12" / "policy")
    with pytest.raises(ConfigError, match="lost the policy of b1-s12, on which the certificate rests: .*--seed"):
        api.Run(run).export(tmp_path / "a")
    api.Run(run).export(tmp_path / "a", seed=13)


def test_a_changed_policy_and_a_full_folder_are_refused(run: Path, tmp_path: Path) -> None:
    weights = run / "trials" / "b1-s13" / "policy" / "model.safetensors"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ConfigError, match="is not an empty folder"):
        api.Run(run).export(tmp_path / "full")
    stray = weights.with_name("pytorch_model.bin")
    stray.touch()
    with pytest.raises(IntegrityError, match=r"pytorch_model.bin was not left by trial b1-s13"):
        api.Run(run).export(tmp_path / "a")
    stray.unlink()
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="is not what trial b1-s13 left"):
        api.Run(run).export(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert not [p for p in tmp_path.iterdir() if "writing" in p.name]


def test_an_adapter_is_merged_into_its_base_model(run: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = policy(tmp_path / "base", 3)
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    adapter = tmp_path / "adapter"
    tuned.save_pretrained(adapter)
    AutoTokenizer.from_pretrained(base).save_pretrained(adapter)
    (adapter / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    with Ledger.open(run / "ledger.db") as ledger:
        done = ev.TrialFinished(
            trial="b0-s7", branch="b0", seed=7, status="complete", cpu_s=1, wall_s=1, steps=4,
            policy_path=str(adapter), policy_sha256=weights_sha256(adapter) or "", scores=())  # fmt: skip
        ledger.append("finished", "b0-s7/finished", done)
    out = api.Run(run).export(tmp_path / "merged", branch="b0", seed=7)
    assert not (out / "adapter_config.json").exists()
    ids = torch.tensor([[1, 5, 9, 12]])
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(out)(ids).logits
        assert (merged - tuned(ids).logits).abs().max() < 1e-4
        assert (merged - AutoModelForCausalLM.from_pretrained(base)(ids).logits).abs().max() > 1e-3
    assert AutoTokenizer.from_pretrained(out).chat_template == "{{ messages[0]['content'] }}"


def test_a_base_of_the_hub_is_named_in_the_card(run: Path, tmp_path: Path) -> None:
    from evotrainer.views.card import model_card
    from evotrainer.views.fold import view_of

    commit = "a" * 40
    told = {"path": f"/home/me/hub/models--org--small/snapshots/{commit}", "id": "org/small", "commit": commit}
    of_hub = {"base_policy": {**told, "sha256": "cd" * 32}}
    events = [
        replace(e, body=e.body.model_copy(update=of_hub)) if e.kind == "run" else e for e in api.Run(run).events()
    ]
    view = view_of(events)
    view.folder = run
    text = model_card(
        view,
        "b1",
        trial="b1-s11",
        seed=11,
        rule="",
        certified=True,
        invalid="",
        caveats=(),
        sha256="",
        base="",
        name="m",
    )
    assert yaml.safe_load(text.split("---\n")[1])["base_model"] == "org/small"
    assert f"| base policy | `org/small@{commit}` `{'cd' * 8}` |" in text and "/home/me" not in text
