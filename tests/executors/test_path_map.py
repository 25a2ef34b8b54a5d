"""`executors.path_map`: paths of a specification move to another machine and come back."""

from __future__ import annotations

from evotrainer.executors.path_map import asked_path, relocated


def test_paths_move_and_come_back() -> None:
    here = {"/home/me/task": "/scratch/inputs/ab", "/data/words.jsonl": "/scratch/inputs/cd/words.jsonl"}
    section = {
        "name": "python:/home/me/task/environment.py:make",
        "n": 3,
        "paths": ["/data/words.jsonl", "/data/words.jsonl2"],
    }
    assert relocated(section, here) == {
        "name": "python:/scratch/inputs/ab/environment.py:make",
        "n": 3,
        "paths": ["/scratch/inputs/cd/words.jsonl", "/data/words.jsonl2"],
    }
    assert asked_path("/scratch/inputs/ab/policy", here) == "/home/me/task/policy"
