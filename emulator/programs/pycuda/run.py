"""Builds PyCUDA, runs its examples, and compares what fails with `expected-failures.txt`.

Arguments name examples, as `from-wiki/matrixmul_tiled.py`. After `--` they are another command to run, which finds
PyCUDA. PyCUDA is built once, from its source.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import expectations

VERSION = "2026.1"
HERE = Path(__file__).parent
WORK = Path(os.environ["PROGRAM_LOGS"]).parent / "pycuda"
SOURCE = WORK / f"pycuda-{VERSION}"
BUILT = WORK / f"built-{VERSION}"
EXAMPLES = SOURCE / "examples"
CUDA = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13"
# Benchmarks of GPUs take much longer. In a session, `simple_speed_test.py` waits 200,000 times for an answer. An answer
# passes through four processes, which takes about a millisecond while all cores are busy.
SECONDS_MAX = 900 if "GPUFLEET_SESSION_SOCKET" in os.environ else 180


def main():
    if not BUILT.exists():
        build()
    if sys.argv[1:2] == ["--"]:
        os.execvpe(sys.argv[2], sys.argv[2:], environment() | {"DOCUMENTATION_PYTHON": sys.executable})
    listed = expectations.read(HERE)
    examples = sys.argv[1:] or sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py"))
    logs = Path(os.environ["PROGRAM_LOGS"])
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = dict(zip(examples, pool.map(lambda example: run(example, logs), examples), strict=True))
    expected = {example: reason for example, reason in listed.items() if example in outcomes}
    sys.exit(report(outcomes, expected, logs))


def build():
    """Downloads the source and builds it, with the emulated driver in place of NVIDIA's."""
    shutil.rmtree(WORK, ignore_errors=True)
    libraries = WORK / "libraries"
    libraries.mkdir(parents=True)
    # The package has the library's versioned name only, which no linker looks for.
    (libraries / "libcurand.so").symlink_to(CUDA / "lib" / "libcurand.so.10")
    driver = os.environ["LD_LIBRARY_PATH"]
    variables = os.environ | {
        "PATH": f"{CUDA / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LIBRARY_PATH": f"{libraries}{os.pathsep}{driver}",
        "CFLAGS": "-w -g0 -O1",
    }
    pip = [sys.executable, "-m", "pip"]
    options = ["--no-deps", "--no-build-isolation", "--no-input", "--disable-pip-version-check"]
    download = ["download", *options, "--no-binary", "pycuda", "--dest", str(WORK), f"pycuda=={VERSION}"]
    subprocess.run([*pip, *download], env=variables, check=True)
    with tarfile.open(WORK / f"pycuda-{VERSION}.tar.gz") as archive:
        archive.extractall(WORK, filter="data")
    partial = WORK / "partial"
    subprocess.run([*pip, "install", *options, "--target", str(partial), str(SOURCE)], env=variables, check=True)
    partial.rename(BUILT)


def environment():
    """The environment of programs that use PyCUDA, with `nvcc`."""
    return os.environ | {
        "PATH": f"{CUDA / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{os.environ['LD_LIBRARY_PATH']}{os.pathsep}{CUDA / 'lib'}",
        "PYTHONPATH": str(BUILT),
    }


def run(example, logs):
    """Runs an example in a folder of its own; "passed" or "failed"."""
    folder = WORK / "folders" / example.replace("/", ".")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    variables = {
        # The `nvcc` of this folder comes first.
        "PATH": f"{HERE.resolve()}{os.pathsep}{os.environ['PATH']}",
        "NVCC": str(CUDA / "bin" / "nvcc"),
        "MPLBACKEND": "Agg",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [sys.executable, HERE.resolve() / "example.py", EXAMPLES / example]
    with (logs / (example.replace("/", ".") + ".log")).open("wb") as output:
        try:
            ended = subprocess.run(
                command,
                env=environment() | variables,
                cwd=folder,
                # Some end when Enter is pressed.
                input=b"\n",
                stdout=output,
                stderr=output,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "failed"
    return "passed" if ended.returncode == 0 else "failed"


def report(outcomes, expected, logs):
    """Writes what came out; the exit code."""
    failed = {example for example, outcome in outcomes.items() if outcome == "failed"}
    print(f"{len(outcomes) - len(failed)} examples ran to their ends, {len(failed)} failed ", end="")
    print(f"({len(failed & expected.keys())} of them expected)")
    return expectations.compare(outcomes, expected, logs)


main()
