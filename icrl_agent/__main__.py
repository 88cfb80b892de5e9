"""``python -m icrl_agent`` is the ``icrl`` command."""

import sys

from icrl_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
