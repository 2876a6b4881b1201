"""A pytest plugin for numba-cuda's tests: imports them under their own names, and writes a line for each outcome."""

import importlib
import os
from pathlib import Path

import pytest

TESTS = "numba.cuda.tests"


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """The test classes ask for it; in numba-cuda's repository it takes an option over."""
    request.cls._dump_failed_filechecks = False


class Module(pytest.Module):
    """Under the name that follows from its place on disk it would be imported a second time."""

    def _getobj(self):
        name = self.path.relative_to(self.config.rootpath).with_suffix("")
        return importlib.import_module(".".join([TESTS, *name.parts]))


def pytest_pycollect_makemodule(module_path, parent):
    return Module.from_parent(parent, path=module_path)


def pytest_collect_directory(path, parent):
    return pytest.Dir.from_parent(parent, path=path)


def pytest_collection_modifyitems(config, items):
    """Leaves out what runs in a process of its own."""
    alone = os.environ.get("TESTS_LEFT_OUT", "").splitlines()
    left_out = [item for item in items if item.nodeid in alone]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        note("failed" if report.failed else "skipped" if report.skipped else "passed", report.nodeid)


def pytest_collectreport(report):
    if report.failed:
        note("failed", report.nodeid)


def note(outcome, test):
    with Path(os.environ["OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(f"{outcome} {test}\n")
