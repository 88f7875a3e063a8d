"""The pods' network: a bridge in a separate network namespace, which one process of the stack holds.

Each pod has an address on it. There is no way out: a default route without anything behind it would make every look-up
of a name wait for 40 seconds. Pods reach the outside through the agent (:mod:`.gateway`).
"""

import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence

from trainium_eks.local import linux
from trainium_eks.local.linux import Namespaces

RANGE = ipaddress.ip_network("100.127.0.0/16")
"""Part of the shared address space of carriers: never a machine's own, and no loopback, which EndpointSlices refuse."""

GATEWAY = str(RANGE[1])

_BRIDGE = "pods"


def free_address(taken: Collection[str], last: str = GATEWAY) -> str:
    """Return the next address that no pod has, in a ring: other pods may still send to a pod that has just gone."""
    used = {*taken, GATEWAY}
    hosts = RANGE.num_addresses - 2
    after = int(ipaddress.ip_address(last)) - int(RANGE[0])
    places = ((after + step - 1) % hosts + 1 for step in range(1, hosts + 1))
    return next(str(RANGE[place]) for place in places if str(RANGE[place]) not in used)


def hold() -> None:
    """Make the network and hold it until this process is ended."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(Namespaces.USER | Namespaces.NET)
    linux.become_root(uid, gid)
    _ip(
        [
            "link set lo up",
            f"link add {_BRIDGE} type bridge",
            f"address add {GATEWAY}/{RANGE.prefixlen} dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        ]
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    while True:
        signal.pause()


def plug(pod: int, network: int, address: str) -> None:
    """Connect a pod to the network; called outside both."""
    # A name of at most 15 characters that no other pod's link has.
    name = f"p{address.partition('.')[2].replace('.', '-')}"
    link = [f"link add {name} type veth peer name eth0 netns {pod}", f"link set {name} master {_BRIDGE} up"]
    _in(network, link, replacing=name)
    address_ = f"address add {address}/{RANGE.prefixlen} dev eth0"
    _in(pod, ["link set lo up", address_, "link set eth0 up"])


def _in(pid: int, lines: Sequence[str], *, replacing: str = "") -> None:
    """Run commands in the network of a process.

    The link ``replacing`` is deleted first, if it exists: the kernel keeps the network of a deleted pod, and with it
    its link, for up to two minutes while it waits for a peer's last packet.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            linux.join(pid, Namespaces.USER | Namespaces.NET)
            there = replacing in [name for _, name in socket.if_nameindex()]
            _ip([f"link delete {replacing}", *lines] if there else lines)
            code = 0
        except OSError as error:
            sys.stderr.write(f"network of process {pid}: {error}\n")
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise OSError(f"the pod's network could not be made ({lines[0]})")


def _ip(lines: Sequence[str]) -> None:
    program = shutil.which("ip", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        raise OSError("there is no program `ip` (package iproute2)")
    done = subprocess.run(
        [program, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip() or done.returncode}")


if __name__ == "__main__":
    hold()
