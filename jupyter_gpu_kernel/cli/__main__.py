"""`python -m jupyter_gpu_kernel.cli`, where the program is not on PATH."""

import sys

from . import main

sys.exit(main())
