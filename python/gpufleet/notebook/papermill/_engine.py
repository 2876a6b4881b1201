"""The engine. papermill loads this module while papermill itself is imported."""

from __future__ import annotations

import ast
import json
import uuid
from pathlib import PurePath
from queue import Empty
from typing import Any

from nbclient.util import ensure_async
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine
from papermill.log import logger

from gpufleet.notebook._watch import Watch

ANSWER_SECONDS = 30
"""The kernel is idle when it is asked."""
_CELLS = "__import__('gpufleet.notebook._cells', fromlist=['begin'])"


class GpufleetEngine(Engine):  # type: ignore[misc]
    """Runs a notebook with papermill's own client. `run` names the run; otherwise it gets a new name."""

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: Any,
        kernel_name: str,
        run: str | None = None,
        input_path: object = None,
        start_timeout: int = 60,
        execution_timeout: int | None = None,
        **options: Any,
    ) -> Any:
        labels = {"notebook": PurePath(str(input_path or "-")).name, "run": run or uuid.uuid4().hex}
        nb_man.nb.metadata["gpufleet"] = labels
        logger.info("The jobs have the labels notebook=%s and run=%s", labels["notebook"], labels["run"])
        with Watch({"run": labels["run"]}) as watch:
            client = _Client(
                nb_man,
                labels,
                watch,
                kernel_name=kernel_name,
                startup_timeout=start_timeout,
                timeout=execution_timeout,
                log=logger,
                **options,
            )
            executed = client.execute()
            if not any(cell.metadata.get("papermill", {}).get("exception") for cell in nb_man.nb.cells):
                watch.complete()
        return executed


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """Tells the kernel which cell begins, and asks it what the jobs took."""

    def __init__(self, nb_man: Any, labels: dict[str, str], watch: Watch, **options: Any) -> None:
        super().__init__(nb_man, on_cell_execute=self._before, on_cell_executed=self._after, **options)
        self._labels = labels
        self._watch = watch
        self._pid: int | None = None

    async def _before(self, cell: Any, cell_index: int) -> None:
        pid = getattr(self.km and self.km.provisioner, "pid", None)
        if pid is not None and self._pid is None:
            self._pid = pid
            self._watch.kernel(pid)
        await self._ask(f"{_CELLS}.begin({str(cell_index)!r}, {self._labels!r})")

    async def _after(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        answer = await self._ask(f"{_CELLS}.report()")
        for index, summary in json.loads(answer or "{}").items():
            self.nb.cells[int(index)].metadata["gpufleet"] = summary

    async def _ask(self, expression: str) -> Any:
        """The value of an expression in the kernel. None if the kernel does not have this package."""
        sent = self._kernel_client.execute("", silent=True, store_history=False, user_expressions={"value": expression})
        try:
            while (reply := await self._reply())["parent_header"].get("msg_id") != sent:
                pass
        except Empty:
            # A kernel that has died fails in the next cell, with an error of its own.
            return None
        value = reply["content"].get("user_expressions", {}).get("value", {})
        return ast.literal_eval(value["data"]["text/plain"]) if value.get("status") == "ok" else None

    async def _reply(self) -> dict[str, Any]:
        reply: dict[str, Any] = await ensure_async(self._kernel_client.shell_channel.get_msg(timeout=ANSWER_SECONDS))
        return reply

    @property
    def _kernel_client(self) -> Any:
        """There is one while cells run."""
        return self.kc
