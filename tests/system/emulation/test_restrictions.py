# SPDX-License-Identifier: Apache-2.0
"""What a machine or a container forbids is one line with its remedy; each is forbidden for real, in a sandbox."""

import json
import subprocess
from pathlib import Path

import pytest

from atoll_core.errors import MachineError
from atoll_emulation.this_machine.host_requirements import _try_kernel
from atoll_emulation.uml.kernel import UmlKernel
from atoll_emulation.uml.recipe import RECIPES, SHIM_SOURCE
from tests.support.sandbox import ATOLL, NOBODY, PYTHON, QUICK, ROOT, Sandbox, faults, open_to_others
from tests.system.runs.test_hostile import OPEN_TUN

pytestmark = pytest.mark.lab

FORBID = (PYTHON, ROOT / "tests/guests/forbid.py")
CONTAINER_ROOT = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
"""Prefix: root with the rights that container runtimes give by default."""

UNCONFINED = "give this container --security-opt seccomp=unconfined"


def check(sandbox: Sandbox, *prefix: str | Path, environment: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`check --machine`, where nobody has built a kernel for virtual time."""
    places = (f"XDG_CACHE_HOME={sandbox.directory}/cache", f"ATOLL_SHARED_KERNELS={sandbox.directory}/none")
    return sandbox.run("env", *places, *environment, *prefix, ATOLL, "check", "--machine", limit_s=100)


def problem(sandbox: Sandbox, name: str, *prefix: str | Path) -> str:
    """The line of a function of `restrictions`."""
    program = f"from atoll_emulation.this_machine.restrictions import {name} as problem; print(problem())"
    done = sandbox.run(*prefix, PYTHON, "-c", program, limit_s=100)
    assert done.stderr == ""
    return done.stdout.strip()


def about(done: subprocess.CompletedProcess[str], text: str) -> str:
    """The one line that has a text."""
    (line,) = [line for line in done.stderr.splitlines() if text in line]
    return line


def settings(**values: int) -> str:
    """A setup script: sysctls below kernel. that this machine may not have, and no others."""
    files = " && ".join(
        f"mkdir -p $(dirname /proc/sys/kernel/{name}) && echo {value} > /proc/sys/kernel/{name}"
        for name, value in values.items()
    )
    return f"mount -t tmpfs none /proc/sys/kernel && {files}"


# Namespaces


def test_where_no_user_namespaces_are_allowed_the_sysctl_is_named(tmp_path: Path) -> None:
    """Bounded to none in a user namespace of the test's own, where root has no rights outside of it."""
    with Sandbox(tmp_path) as sandbox:
        bounded = ("unshare", "--user", "--map-root-user", "sh", "-c")
        forbidding = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
        done = check(sandbox, *bounded, forbidding, "sh", *CONTAINER_ROOT)
    line = about(done, "user.max_user_namespaces")
    assert line.startswith("--on mininet and --on virtual not available: root may not make namespaces here (unshare: ")
    assert line.endswith("user.max_user_namespaces is 0): allow user namespaces: sysctl user.max_user_namespaces=10000")


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("unprivileged_userns_clone", 0, "or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
        (
            "apparmor_restrict_unprivileged_userns",
            1,
            "or let AppArmor allow it: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_settings_of_distributions_against_user_namespaces_are_named(
    tmp_path: Path, name: str, value: int, remedy: str
) -> None:
    """The kernel refuses them to a chrooted process; the setting is a file, for this kernel may not have it."""
    open_to_others(tmp_path)
    jail = tmp_path / "jail"
    jail.mkdir()
    with Sandbox(
        tmp_path, user=NOBODY, jail=jail, setup=f"{settings(**{name: value})} && mount --rbind / {jail}"
    ) as sandbox:
        assert problem(sandbox, "namespaces_problem").endswith(remedy)


def test_a_filter_of_a_container_is_named(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    with Sandbox(tmp_path, user=NOBODY, setup=OPEN_TUN.format(tmp_path / "dev")) as sandbox:
        done = check(sandbox, *FORBID, "unshare,mount", "EPERM")
    assert about(done, "seccomp").endswith(
        f"run as root, or a filter of system calls (seccomp) forbids it; {UNCONFINED}"
    )


def test_a_container_that_hides_parts_of_proc_is_named(tmp_path: Path) -> None:
    """Where no other /proc is visible, as of a chroot. Virtual time does not need it."""
    open_to_others(tmp_path)
    others = 'awk \'$3 == "proc" && $2 != "/proc" {print $2}\' /proc/mounts | xargs -r umount -l'
    setup = f"{OPEN_TUN.format(tmp_path / 'dev')} && {others} && mount -t tmpfs none /proc/fs"
    with Sandbox(tmp_path, user=NOBODY, setup=setup) as sandbox:
        done = check(sandbox)
    line = about(done, "/proc")
    assert line.startswith("--on mininet not available: this container hides parts of /proc")
    assert "unmask=ALL" in line


def test_root_of_a_container_has_a_lab_as_a_plain_user_has(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(*CONTAINER_ROOT, ATOLL, "run", QUICK, "--json", limit_s=120)
        assert done.returncode in (0, 3), done.stderr
        assert faults(json.loads(done.stdout)) == []
        sandbox.wait_clean()


# Virtual time


def test_a_filter_of_personality_is_named(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        assert problem(sandbox, "personality_problem") == "None"
        line = problem(sandbox, "personality_problem", *FORBID, "personality", "ENOSYS")
    assert (
        line == f"a filter of system calls (seccomp) forbids personality(2), which repeatable runs need; {UNCONFINED}"
    )


@pytest.mark.parametrize(
    ("scope", "text"),
    [(0, f"as in a container: {UNCONFINED}"), (2, "sysctl kernel.yama.ptrace_scope=1"), (3, "/etc/sysctl.d and boot")],
)
def test_what_forbids_to_trace_is_named(tmp_path: Path, scope: int, text: str) -> None:
    with Sandbox(tmp_path, setup=settings(**{"yama/ptrace_scope": scope})) as sandbox:
        assert problem(sandbox, "ptrace_problem") == "None"
        assert text in problem(sandbox, "ptrace_problem", *FORBID, "ptrace", "EPERM")


def test_a_kernel_that_does_not_start_is_no_way() -> None:
    kernel = UmlKernel(Path("/bin/false"), "7.2", shim=SHIM_SOURCE)
    with pytest.raises(MachineError, match=r"^the kernel for virtual time does not start: "):
        _try_kernel(kernel)


# File systems


def noexec(place: Path) -> str:
    return f"mkdir -p {place} && mount -t tmpfs -o noexec none {place}"


def test_a_cache_that_is_mounted_noexec_is_named(tmp_path: Path) -> None:
    """Before a kernel is built there."""
    cache = tmp_path / "cache"
    with Sandbox(tmp_path, setup=noexec(cache)) as sandbox:
        done = check(sandbox)
        places = (f"XDG_CACHE_HOME={cache}", f"ATOLL_SHARED_KERNELS={tmp_path}/none")
        build = sandbox.run("env", *places, ATOLL, "kernel", "build", limit_s=100)
    remedy = f"because {cache} is mounted noexec: mount -o remount,exec {cache} (as root)"
    assert about(done, "noexec").endswith(f"{cache}/atoll/kernel/linux cannot be executed, {remedy}")
    assert build.returncode == 1
    assert f"{remedy}; or name another place in XDG_CACHE_HOME" in about(build, "noexec")


def test_a_kernel_on_a_file_system_that_is_mounted_noexec_is_named(tmp_path: Path) -> None:
    kernel = tmp_path / "cache/atoll/kernel" / f"7.2.0-{RECIPES[-1].hash}"
    facts = """echo '{"release": "7.2.0"}' > kernel.json"""
    files = f"mkdir -p {kernel} && cd {kernel} && touch linux fixed-random.so && {facts} && cd /"
    with Sandbox(tmp_path, setup=f"{noexec(tmp_path / 'cache')} && {files}") as sandbox:
        line = about(check(sandbox), "noexec")
    assert line.startswith(
        f"--on virtual not available: {kernel}/linux cannot be executed, because {tmp_path}/cache is "
    )
    assert "XDG_CACHE_HOME=DIRECTORY atoll kernel build" in line


def test_a_program_for_hosts_on_a_file_system_that_is_mounted_noexec_is_named(tmp_path: Path) -> None:
    place = tmp_path / "a home"
    setup = f"mkdir '{place}' && mount -t tmpfs -o noexec none '{place}' && cp /bin/true '{place}/atoll-host'"
    with Sandbox(tmp_path, setup=setup) as sandbox:
        done = check(sandbox, environment=(f"ATOLL_HOST={place}/atoll-host",))
    assert done.returncode == 1
    assert f"{place}/atoll-host cannot be executed, because {place} is mounted noexec" in about(done, "noexec")
