"""``python -m localllm`` is the command ``localllm``."""

import sys

from localllm.cli import main

sys.exit(main())
