"""Files as an agent's edits left them."""

from __future__ import annotations

import json

from evotrainer.harness.code_reading.final_files import edited_files
from evotrainer.records.rollout import ToolCall, Turn


def acts(*calls: tuple[str, object], ok: bool | None = None) -> list[Turn]:
    turns = [Turn(role="user", text="Mend it.")]
    for name, given in calls:
        text = given if isinstance(given, str) else json.dumps(given)
        turns.append(Turn(role="assistant", text="", tool_calls=(ToolCall(name=name, arguments=text, ok=ok),)))
        turns.append(Turn(role="tool", text="done"))
    return turns


def test_a_file_is_as_its_last_edit_left_it() -> None:
    turns = acts(
        ("edit", {"command": "create", "path": "/app/a.py", "file_text": "x = 1\ny = 2\n"}),
        ("edit", {"command": "str_replace", "path": "/app/a.py", "old_str": "x = 1", "new_str": "x = 10"}),
        ("bash", {"command": "cd /app && sed -i 's/y = 2/y = 20/' a.py && cp a.py b.py"}),
        ("bash", {"command": "cat > c.py <<'EOF'\nprint(1)\nEOF\necho 'print(2)' >> c.py; rm /app/b.py"}),
    )
    files = edited_files(turns)
    assert files["/app/a.py"].text.split() == ["x", "=", "10", "y", "=", "20"]
    assert files["c.py"].text.split() == ["print(1)", "print(2)"]
    assert "/app/b.py" not in files


def test_of_a_file_that_was_never_shown_the_edits_are_known() -> None:
    edit = {"command": "str_replace", "path": "m.py", "old_str": "    a()\n    b()", "new_str": "    a()\n    c()"}
    (file,) = edited_files(acts(("edit", edit))).values()
    assert not file.whole and file.text == "a()\nc()" and "a()" in file.before


def test_patches_of_both_forms_are_read() -> None:
    add = "*** Begin Patch\n*** Add File: n.py\n+z = 3\n*** End Patch"
    diff = "--- a/n.py\n+++ b/n.py\n@@ -1 +1 @@\n-z = 3\n+z = 4\n"
    assert edited_files(acts(("apply_patch", {"input": add})))["n.py"].text == "z = 3"
    assert edited_files(acts(("apply_patch", {"input": add}), ("apply_patch", {"patch": diff})))["n.py"].text == "z = 4"


def test_what_failed_or_was_put_back_is_not_there() -> None:
    write = ("edit", {"command": "create", "path": "a.py", "file_text": "x = 1"})
    assert not edited_files(acts(write, ok=False))
    assert not edited_files(acts(write, ("bash", {"command": "git checkout -- a.py"})))


def test_an_edit_by_line_numbers_goes_to_the_open_file() -> None:
    turns = acts(("create", "create t.py"), ("bash", "cat > t.py <<'E'\na\nb\nc\nE"), ("open", "open t.py"))
    turns += acts(("edit", "2:2\nB\nend_of_edit"))[1:]
    assert edited_files(turns)["t.py"].text.strip() == "a\nB\nc"
