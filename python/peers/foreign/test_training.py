"""PyTorch on the machine of a worker: a program, cells with state, and a whole notebook with plots."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import nbformat
import pytest
import torch
from notebooks import run, text
from programs import ENVIRONMENT

import gpufleet as gf

SECONDS = 300
SHOWN_SECONDS = 1.0
"""The time in which a printed line arrives."""
TRAIN = """
import time
import torch

torch.manual_seed(0)
x = torch.linspace(-1, 1, 64).reshape(-1, 1)
y = 3 * x + 1
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(1, 6):
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item(), "at", time.time(), flush=True)
    time.sleep(0.3)
torch.save(model.state_dict(), "model.pt")
"""
SETUP = """
%load_ext gpufleet
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x) * SCALE

def loss_of(model):
    return torch.nn.functional.mse_loss(model(x), y)

SCALE = 2.0
torch.manual_seed(0)
x = torch.linspace(-1, 1, 64).reshape(-1, 1)
y = x ** 2
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
begin = loss_of(model).item()
"""
STEPS = """
for _ in range(50):
    optimizer.zero_grad()
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
last = loss.item()
"""
NOTEBOOK = (
    ("markdown", "# How a line is learnt"),
    ("parameters", "epochs = 1"),
    ("code", "import time\nimport torch\nimport matplotlib.pyplot as plt"),
    ("code", "model = torch.nn.Linear(1, 1)\nx = torch.linspace(-1, 1, 64).reshape(-1, 1)\nlosses = []"),
    (
        "code",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"
        "for epoch in range(epochs):\n"
        "    optimizer.zero_grad()\n"
        "    loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    losses.append(loss.item())\n"
        "    print('epoch', epoch, 'at', time.time())\n"
        "    time.sleep(0.3)",
    ),
    ("code", "plt.plot(losses)\nplt.xlabel('epoch')\nplt.title(f'{len(losses)} epochs');"),
    ("code", "losses[-1] < losses[0]"),
)


def test_a_training_program_streams_its_losses_and_brings_the_model_back(
    fleet: gf.Fleet, programs: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    came: list[tuple[float, str]] = []
    future = fleet.submit_program(
        ["python", "train.py"],
        env=ENVIRONMENT,
        pool=programs,
        upload=tmp_path / "train.py",
        download="*.pt",
        on_progress=lambda progress: came.append((time.time(), progress.printed)),
    )
    result = future.result(SECONDS)
    lines = [(at, line.split()) for at, text in came for line in text.splitlines()]
    assert [words[1] for _, words in lines] == ["1", "2", "3", "4", "5"]
    assert all(at - float(words[5]) < SHOWN_SECONDS for at, words in lines), lines
    result.files.extract(tmp_path)
    model = torch.nn.Linear(1, 1)
    model.load_state_dict(torch.load(tmp_path / "model.pt"))
    assert abs(model.weight.item() - 3) < 0.01 and abs(model.bias.item() - 1) < 0.01


def test_cells_on_the_worker_train_a_model_of_the_notebook(programs: str, tmp_path: Path) -> None:
    remote = f"%%gpu --remote --env {ENVIRONMENT} --pool {programs}"
    _, first, state, second, end = run(
        SETUP,
        remote + STEPS + "print(f'{last < begin} {SCALE}')",
        "middle = last\nparts = [*model.parameters()]\nheld = optimizer.param_groups[0]['params']\n"
        "shares = all(a is b for a, b in zip(parts, held))\n"
        "print(shares, isinstance(model, Net), abs(loss_of(model).item() - last) < 0.1)",
        remote + STEPS + "frozen = [p.detach().clone() for p in model.parameters()]\nlast",
        "same = all(torch.equal(a, b) for a, b in zip(frozen, model.parameters()))\n"
        "print(same, last < middle < begin, optimizer.state[held[0]] is not None)",
        folder=tmp_path,
    )
    assert "True 2.0" in text(first) and "came back: last, loss, model, optimizer (" in text(first)
    assert text(state) == "True True True\n"
    assert "came back: frozen, last, loss, model, optimizer (" in text(second)
    assert text(end) == "True True True\n"


def test_a_whole_notebook_runs_on_the_worker(programs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    cells = [make.get(kind, make["code"])(source) for kind, source in NOTEBOOK]
    cells[1].metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), "line.ipynb")
    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    assert command
    options = ["--env", ENVIRONMENT, "--pool", programs, "-p", "epochs", "5"]
    with subprocess.Popen(
        [command, "notebook", "run", "line.ipynb", *options], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        lines = [(time.time(), line.split()) for line in running.stdout if line.startswith("epoch ")]
    assert running.returncode == 0
    assert [words[1] for _, words in lines] == ["0", "1", "2", "3", "4"]
    assert all(at - float(words[3]) < SHOWN_SECONDS for at, words in lines), lines
    done = nbformat.read("line-done.ipynb", as_version=4)
    shown = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert shown[-1].data["text/plain"] == "True"
