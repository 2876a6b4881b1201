"""Slurm with a controller and two nodes of one CPU each, all on loopback. Arrays go through a shared folder."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy

import slurm_job
import work
from side import Side, wait

NODES = 2
#: How often the submitter looks for a result.
POLL_SECONDS = 0.005
DAEMONS = ["munged", "slurmctld", "slurmd"]
#: Slurm's default is 300 s; a node that does not answer for so long is down.
SLURMD_TIMEOUT = 10

CONFIG = """
ClusterName=comparison
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdTimeout={slurmd_timeout}
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm(Side):
    # A job of a lost node is requeued once the node is down.
    silence_seconds = 60

    def start(self):
        missing = [name for name in DAEMONS if not program(name)]
        if missing:
            raise RuntimeError(f"{', '.join(missing)} not installed")
        self.write_config()
        self.start_munge()
        self.spawn(program("slurmctld"), "-D", "-f", os.environ["SLURM_CONF"])
        self.nodes = [
            self.spawn(program("slurmd"), "-D", "-N", name, "-f", os.environ["SLURM_CONF"]) for name in node_names()
        ]
        wait("the nodes", lambda: run("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * NODES)
        return {"about": f"Slurm {run('sinfo', '--version').split()[-1]}, {NODES} nodes, SlurmdTimeout={SLURMD_TIMEOUT}"}

    def write_config(self):
        os.environ["SLURM_CONF"] = os.path.join(self.folder, "slurm.conf")
        nodes = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=1"
            for name in node_names()
        ]
        config = CONFIG.format(
            controller_port=free_port(),
            folder=self.folder,
            user=run("id", "--user", "--name").strip(),
            slurmd_timeout=SLURMD_TIMEOUT,
            nodes="\n".join(nodes),
        )
        for name in ["state", *node_names()]:
            os.mkdir(os.path.join(self.folder, name))
        with open(os.environ["SLURM_CONF"], "w") as file:
            file.write(config)

    def start_munge(self):
        path = {name: os.path.join(self.folder, f"munge.{name}") for name in ["key", "socket", "pid", "log", "seed"]}
        with open(os.open(path["key"], os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(128))
        self.spawn(
            program("munged"), "--foreground", "--force", f"--key-file={path['key']}", f"--socket={path['socket']}",
            f"--pid-file={path['pid']}", f"--log-file={path['log']}", f"--seed-file={path['seed']}",
        )
        wait("munged", lambda: os.path.exists(path["socket"]))

    def submit_all(self, numbers, milliseconds):
        numbers = list(numbers)
        for number in numbers:
            for name, array in zip("xy", work.arrays(number)):
                numpy.save(slurm_job.file(number, name), array)
            result = slurm_job.file(number, "result")
            if os.path.exists(result):
                os.remove(result)
        job = [sys.executable, slurm_job.__file__]
        if len(numbers) == 1:
            run("srun", "--quiet", *job, str(numbers[0]), str(milliseconds))
        else:
            self.submit_array(job, numbers, milliseconds)
        return [(number, number) for number in numbers]

    def submit_array(self, job, numbers, milliseconds):
        script = f"#!/bin/sh\nexec {' '.join(job)} $SLURM_ARRAY_TASK_ID {milliseconds}\n"
        output = os.path.join(self.folder, "job-%A_%a.log")
        array = f"--array={numbers[0]}-{numbers[-1]}"
        run("sbatch", "--quiet", f"--output={output}", array, input=script)

    def fetch(self, handle, seconds):
        result = slurm_job.file(handle, "result")
        deadline = time.monotonic() + seconds
        while not os.path.exists(result):
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
        return numpy.load(result)

    def kill_worker(self, runs):
        """The node's daemon with everything below it, as when a machine is lost."""
        node = self.nodes[0]
        for pid in [node.pid, *steps_of(node_names()[0])]:
            os.kill(pid, signal.SIGKILL)

    def stop(self):
        super().stop()
        # Step daemons detach themselves; ours are those in this network namespace.
        for pid in processes():
            if read(pid, "cmdline").startswith(b"slurmstepd") and network(pid) == network("self"):
                os.kill(pid, signal.SIGKILL)

    def history(self):
        return len(run("squeue", "--noheader", "--array", "--states=all").splitlines())


def node_names():
    return [f"node{number}" for number in range(NODES)]


def steps_of(node):
    """The processes that carry out jobs on a node: those that Slurm told its name, and the step daemons above them."""
    of_node = {pid for pid in processes() if f"SLURMD_NODENAME={node}".encode() in read(pid, "environ").split(b"\0")}
    parents = {parent(pid) for pid in of_node}
    return of_node | {pid for pid in parents if read(pid, "cmdline").startswith(b"slurmstepd")}


def network(pid):
    return os.stat(f"/proc/{pid}/ns/net").st_ino


def parent(pid):
    stat = read(pid, "stat").rpartition(b") ")[2].split()
    return int(stat[1]) if stat else 0


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        # It ended meanwhile.
        return b""


def program(name):
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(*command, input=None):
    result = subprocess.run(command, input=input, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{command[0]} failed: {result.stderr.strip()}")
    return result.stdout


if __name__ == "__main__":
    Slurm().serve()
