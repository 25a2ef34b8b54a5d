"""Skills on disk, in the open Agent Skills format: a folder each, with SKILL.md and evidence.json."""

from evotrainer.skills.library import (
    SKILL_FILES,
    content_hash,
    find_skills,
    library_problems,
    merge,
    read_library,
    read_skill,
    rendered_hash,
    write_skill,
)
from evotrainer.skills.validate import check_format, check_skill, check_trial
