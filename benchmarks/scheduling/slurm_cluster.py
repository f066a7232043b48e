# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine: its controller, accounting, and a slurmd a node with GPUs that are
null devices. Everything is private to a directory, listens on the loopback, and is ended again."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.programs import wait_until
from benchmarks.scheduling.timed_jobs import TimedJob

#: program -> Debian package that has it
PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
}
#: The SQL plugin of slurmdbd is a package of its own.
_PLUGIN = ("slurm-wlm-mysql-plugin", "accounting_storage_mysql.so")

#: Backfill each second, and a promise for the first job of the line alone: EASY.
EASY = (
    "sched_interval=1,batch_sched_delay=0,bf_interval=1,bf_continue,bf_max_job_test=1000,"
    "bf_window=60,bf_resolution=1,bf_job_part_count_reserve=1"
)

_CONFIGURATION = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters={tuning}
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityMaxAge=0-1
PriorityDecayHalfLife=00:10:00
PriorityCalcPeriod=1
KillWait=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass=socket={directory}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs=64 \
Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 \
Gres=gpu:a100:{gpus} State=UNKNOWN
PartitionName=gpu Nodes={nodes} TRESBillingWeights="CPU=0,GRES/gpu=1.0" Default=YES \
MaxTime=INFINITE DefaultTime=10 State=UP
"""

_ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={accounting_port}
SlurmUser=root
LogFile={directory}/slurmdbd.log
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_bench
CommunicationParameters=NoInAddrAny
"""


def missing() -> list[str]:
    """The Debian packages that a Slurm lacks on this machine."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    found = [package for name, package in PACKAGES.items() if not shutil.which(name, path=path)]
    package, plugin = _PLUGIN
    if not list(Path("/usr/lib").glob(f"**/slurm*/{plugin}")):
        found.append(package)
    return found


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes and the GPUs of each, and the first of the loopback's ports to use."""

    nodes: int
    gpus: int
    port: int = 16800


class Slurm:
    """One cluster; ``start`` and ``stop`` it.

    :param directory: short (sockets are in it), empty, and open to others (``munge`` enters it).
    :param database: socket of a MariaDB server whose root needs no password.
    """

    def __init__(
        self, directory: Path, shape: Shape, database: str, teams: Sequence[str], tuning: str = EASY
    ) -> None:
        self._directory = directory
        self._shape = shape
        self._teams = teams
        self._tuning = tuning
        self._environment = {
            **os.environ,
            "PATH": os.environ.get("PATH", "") + os.pathsep + "/usr/sbin",
            "SLURM_CONF": str(directory / "slurm.conf"),
            "MYSQL_UNIX_PORT": database,
        }
        self._database = database
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Bring everything up; returns when every node is idle."""
        self._configure()
        self._munge()
        query = "DROP DATABASE IF EXISTS slurm_bench; CREATE DATABASE slurm_bench"
        client = ["mariadb", "--no-defaults", "-uroot", "-S", self._database, "-e", query]
        subprocess.run(client, check=True, timeout=60)
        self._run("slurmdbd", ["slurmdbd", "-D"])
        wait_until(lambda: self._answers("sacctmgr", "-n", "show", "cluster"), "slurmdbd answers")
        self._tell("sacctmgr", "-i", "add", "cluster", "bench")
        for team in self._teams:
            self._tell("sacctmgr", "-i", "add", "account", team, "fairshare=10")
            self._tell("sacctmgr", "-i", "add", "user", "root", f"account={team}")
        self._run("slurmctld", ["slurmctld", "-D"])
        wait_until(lambda: self._answers("scontrol", "ping"), "slurmctld answers")
        for number in range(self._shape.nodes):
            (self._directory / "spool" / f"n{number}").mkdir(parents=True)
            self._run(f"slurmd-{number}", ["slurmd", "-D", "-N", f"n{number}"])
        wait_until(self._idle, "every node is idle")

    def submit(self, job: TimedJob, script: str) -> None:
        """Put a job in line, with a limit of one minute, as its team."""
        self._tell(
            "sbatch", "--parsable", f"--account={job.team}", f"--job-name={job.number}",
            f"--nodes={job.nodes}", "--ntasks-per-node=1", f"--gres=gpu:a100:{job.gpus}",
            "--time=1", "--output=/dev/null", "--chdir=/", given="#!/bin/sh\n" + script,
        )  # fmt: skip

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of the programs that decide and of those that run jobs."""
        used = {name: _cpu_of(one.pid) for name, one in self._processes.items()}
        nodes = sum(value for name, value in used.items() if name.startswith("slurmd-"))
        return {"slurmctld": used["slurmctld"], "slurmdbd": used["slurmdbd"], "slurmd": nodes}

    def stop(self) -> None:
        """End jobs and programs."""
        if "slurmctld" in self._processes:
            self._call("scancel", "--account=" + ",".join(self._teams))
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- bringing up -----------------------------------------------------------------------
    def _configure(self) -> None:
        shape, directory = self._shape, self._directory
        for name in ("state", "spool", "devices", "munge"):
            (directory / name).mkdir()
        for number in range(shape.gpus):
            os.mknod(directory / "devices" / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        facts = {
            "directory": directory,
            "host": socket.gethostname().partition(".")[0],
            "tuning": self._tuning,
            "nodes": f"n[0-{shape.nodes - 1}]",
            "gpus": shape.gpus,
            "controller_port": shape.port,
            "accounting_port": shape.port + 1,
            "first_port": shape.port + 10,
            "last_port": shape.port + 9 + shape.nodes,
        }
        (directory / "slurm.conf").write_text(_CONFIGURATION.format(**facts), encoding="utf-8")
        accounting = directory / "slurmdbd.conf"
        accounting.write_text(_ACCOUNTING.format(**facts), encoding="utf-8")
        accounting.chmod(0o600)
        (directory / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={facts['nodes']} Name=gpu Type=a100 "
            f"File={directory}/devices/gpu[0-{shape.gpus - 1}]\n",
            encoding="utf-8",
        )
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")

    def _munge(self) -> None:
        place = self._directory / "munge"
        key = place / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (place, key):
            shutil.chown(path, "munge", "munge")
        place.chmod(0o755)
        options = [
            f"--{name}={place}/{file}"
            for name, file in (
                ("key-file", "key"),
                ("socket", "socket"),
                ("pid-file", "pid"),
                ("log-file", "log"),
                ("seed-file", "seed"),
            )
        ]
        user = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--"]
        self._run("munged", [*user, "munged", "--foreground", "--force", *options])
        wait_until((place / "socket").exists, "munged listens")

    def _run(self, name: str, command: list[str]) -> None:
        with (self._directory / f"{name}.out").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=output
            )

    def _call(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment, input=given, capture_output=True, text=True, timeout=60
        )

    def _answers(self, *command: str) -> bool:
        return self._call(*command).returncode == 0

    def _tell(self, *command: str, given: str = "") -> None:
        done = self._call(*command, given=given)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")

    def _idle(self) -> bool:
        told = self._call("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").stdout.split()
        time.sleep(0.1)
        return len(set(told)) == self._shape.nodes


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process and of its dead children that it waited for."""
    try:
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0
