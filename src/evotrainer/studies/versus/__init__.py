"""`evotrainer versus`: are the policies of one set of foreign logs better than those of another?"""

from evotrainer.studies.versus.compare import Versus, compare
from evotrainer.studies.versus.seeds import Selection, read_side
