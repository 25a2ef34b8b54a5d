"""`evotrainer notify`: a message to see that messages arrive."""

from __future__ import annotations

from evotrainer.cli._common import Overrides, TaskPath
from evotrainer.errors import ConfigError
from evotrainer.records.output import print


def notify(task: TaskPath, overrides: Overrides = None) -> None:
    """Send a test message as a task file's [notify] says: to its webhook, to its command.

    Example: evotrainer notify task.toml notify.webhook_env=SLACK_WEBHOOK notify.form=slack
    """
    from evotrainer.config.load import load_task
    from evotrainer.extras.notify.channels import check, send
    from evotrainer.extras.notify.messages import Notice

    found = load_task(task, overrides or [])
    if not found.notify.asked:
        raise ConfigError("[notify] names nobody to tell; set notify.webhook_env, notify.webhook or notify.command")
    for note in check(found.notify):
        print(f"note: {note}")
    send(found.notify, found.task.name, "", [Notice("end", "this is a test message of evotrainer")])
    print(f"sent; a run tells of {', '.join(found.notify.on)}, at most once in {found.notify.every_s:g} s")
