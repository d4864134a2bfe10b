# SPDX-License-Identifier: Apache-2.0
"""Programs of others pass two proxies unmodified: curl, wrk, iperf3, ssh."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.pep_lab import Proxied, two_proxies

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("multiplex", [False, True], ids=["split", "multiplexed"])]

CONTENTS = bytes(range(251)) * 20_000

NGINX = """
daemon off;
master_process off;
pid {directory}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/nginx;
    proxy_temp_path {directory}/nginx;
    fastcgi_temp_path {directory}/nginx;
    uwsgi_temp_path {directory}/nginx;
    scgi_temp_path {directory}/nginx;
    server {{ listen 10.10.0.1:8080; root {directory}/files; }}
}}
"""

SSHD = """
Port 2222
HostKey {directory}/key
AuthorizedKeysFile {directory}/key.pub
PidFile none
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
"""


def program(name: str) -> str:
    """Its file; skips the test where there is none."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin")
    if not found:
        pytest.skip(f"there is no {name} on this machine; run: tools/setup test")
    return found


async def serve(pep: Proxied, name: str, argv: list[str], port: int) -> None:
    """Start a server at the world host, and wait until it listens."""
    await pep.lab.agent.start_job(name, argv, netns=pep.world)
    await pep.lab.run(pep.world, f"timeout 10 sh -c 'until ss -Htln sport = {port} | grep -q .; do sleep 0.05; done'")


async def test_http(tmp_path: Path, multiplex: bool) -> None:
    """Eight files at once by curl, and requests of 50 clients of wrk for two seconds, without an error."""
    nginx, curl, wrk = program("nginx"), program("curl"), program("wrk")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/large").write_bytes(CONTENTS)
    (tmp_path / "files/small").write_bytes(CONTENTS[:1000])
    (tmp_path / "nginx.conf").write_text(NGINX.format(directory=tmp_path))
    async with two_proxies(tmp_path, multiplex=multiplex) as (pep, _, _):
        await serve(pep, "nginx", [nginx, "-e", "stderr", "-c", str(tmp_path / "nginx.conf")], 8080)
        url = "http://10.10.0.1:8080"
        await pep.lab.run(pep.island, f"{curl} -sSf --parallel -o '{tmp_path}/fetched-#1' '{url}/large?[1-8]'")
        assert [(tmp_path / f"fetched-{number}").read_bytes() == CONTENTS for number in range(1, 9)] == [True] * 8
        said = await pep.lab.run(pep.island, f"{wrk} -t 1 -c 50 -d 2 {url}/small")
        assert " requests in " in said
        assert "errors" not in said
        assert "Non-2xx" not in said
        await carried(pep, multiplex, 58)


async def test_iperf3(tmp_path: Path, multiplex: bool) -> None:
    """Four connections in each direction, and one to agree on that."""
    async with two_proxies(tmp_path, multiplex=multiplex) as (pep, _, _):
        await serve(pep, "iperf3", ["iperf3", "-s", "-B", "10.10.0.1"], 5201)
        await pep.lab.run(pep.island, "iperf3 -P 4 -n 5M -c 10.10.0.1")
        said = json.loads(await pep.lab.run(pep.island, "iperf3 -J -R -P 4 -n 5M -c 10.10.0.1"))
        assert said["end"]["sum_received"]["bytes"] >= 5_000_000
        await carried(pep, multiplex, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="a login by ssh takes root")
async def test_ssh(tmp_path: Path, multiplex: bool) -> None:
    """A file to the server, and from there."""
    sshd, ssh = program("sshd"), program("ssh")
    (tmp_path / "file").write_bytes(CONTENTS)
    (tmp_path / "sshd_config").write_text(SSHD.format(directory=tmp_path))
    own = f"mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {sshd} -D -e -f {tmp_path}/sshd_config"
    async with two_proxies(tmp_path, multiplex=multiplex) as (pep, _, _):
        await pep.lab.run(None, f"ssh-keygen -q -t ed25519 -N '' -f {tmp_path}/key")
        await serve(pep, "sshd", ["unshare", "--mount", "sh", "-c", own], 2222)
        options = (
            f"-F none -i {tmp_path}/key -o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=accept-new"
        )
        login = f"{ssh} {options} -p 2222 root@10.10.0.1"
        digest = hashlib.sha256(CONTENTS).hexdigest()
        assert digest in await pep.lab.run(pep.island, f"{login} sha256sum <{tmp_path}/file")
        assert digest in await pep.lab.run(pep.island, f"{login} cat {tmp_path}/file | sha256sum")
        await carried(pep, multiplex, 2)


async def carried(pep: Proxied, multiplex: bool, least: int) -> None:
    """The proxy has carried so many connections at least, and holds nothing any more."""
    counted = await pep.settled()
    assert counted["connections"] >= least
    assert counted["multiplexed_connections"] == (counted["connections"] if multiplex else 0)
    assert (counted["held_bytes"], counted["buffered_bytes"], counted["own_resets"]) == (0, 0, 0)
