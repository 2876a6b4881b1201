"""The commands of a cell that begin with `!`. Magics belong to the notebook's own kernel."""

from __future__ import annotations

import subprocess
from typing import NoReturn

__all__ = ["Shell"]


class Shell:
    """What `get_ipython()` returns in a cell on the worker."""

    def system(self, command: str) -> None:
        """Runs `!command`, whose output is that of the cell."""
        subprocess.run(command, shell=True, check=False)

    def getoutput(self, command: str) -> list[str]:
        """Runs `lines = !command`."""
        found = subprocess.run(
            command, shell=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return found.stdout.splitlines()

    def run_line_magic(self, name: str, line: str, *args: object) -> None:
        # Figures are shown below the cell anyway.
        if name != "matplotlib":
            self._refuse(f"%{name}")

    def run_cell_magic(self, name: str, line: str, cell: str) -> NoReturn:
        self._refuse(f"%%{name}")

    def _refuse(self, magic: str) -> NoReturn:
        raise NotImplementedError(f"{magic} does not run on the worker; use it in a cell without %%gpu --remote")
