"""The kernelspecs of this package on disk: `reader.py` lists and reads them, `writer.py` writes and removes them.

One remote kernel can have two kernelspecs of the same name. The one in the user's Jupyter folder holds the settings and
has only an argv, so that every program and every environment can use it. Where the user owns this environment, another
one under `sys.prefix` points to the first and has the provisioner's stanza. jupyter_client hides a kernelspec with a
stanza wherever this package is not installed.
"""

from .reader import HOW_TO_ADD as HOW_TO_ADD
from .reader import Kernelspec as Kernelspec
from .reader import all_for_hub as all_for_hub
from .reader import find as find
from .reader import find_all as find_all
from .reader import find_broken as find_broken
from .reader import is_known as is_known
from .reader import read as read
from .reader import shadowed_by as shadowed_by
from .reader import unknown_error as unknown_error
from .writer import check_name as check_name
from .writer import remove as remove
from .writer import write as write
