# SPDX-License-Identifier: Apache-2.0
"""A run directory of any length as a laboratory would leave it: captures, counters, pings, flow logs, job logs.

GEO 8 Mbit/s at two thirds of its rate, six world servers, six clients, some flows a second, three captures. Packets are
made a minute at a time by NumPy, so that hours of them take minutes. Flows do not retransmit lost packets.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from atoll_analysis.run_directory import RunDir
from atoll_analysis.tables.box_counters import COUNTER_CAUSES
from atoll_core.units import Duration, Rate, Size
from tests.support import synthetic_run

SECOND = 10**9
_CHUNK_S = 60
_SEGMENT = 1448
_LOAD = 2 / 3
_LOST = 0.005
_MEAN_BYTES = 50_000
_LINK_NS = 250_000_000

Numbers = npt.NDArray[np.int64]

_FRAME = np.dtype(
    [
        ("sec", "<u4"), ("nsec", "<u4"), ("kept", "<u4"), ("length", "<u4"),
        ("macs", "V12"), ("ethertype", ">u2"),
        ("version", "u1"), ("tos", "u1"), ("ip_bytes", ">u2"), ("ip_id", ">u2"), ("fragment", ">u2"), ("ttl", "u1"),
        ("proto", "u1"), ("ip_checksum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
        ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1"), ("flags", "u1"),
        ("window", ">u2"), ("checksum", ">u2"), ("urgent", ">u2"),
    ]
)  # fmt: skip
_HEADER = bytes.fromhex("4d3cb2a1020004000000000000000000") + (96).to_bytes(4, "little") + (1).to_bytes(4, "little")


def make(base: Path, seconds: int, seed: int = 1) -> RunDir:
    """A run of so many seconds below ``base``."""
    random = np.random.default_rng(seed)
    lab = synthetic_run.network()
    asked = synthetic_run.experiment(duration=Duration(seconds * SECOND), transfer=None)
    link = asked.links[0]
    to_island = synthetic_run.LinkDirection(Rate(8_000_000), link.to_island.delay, Size(100_000))
    asked = synthetic_run.experiment(
        duration=Duration(seconds * SECOND),
        transfer=None,
        links=(synthetic_run.Link("sat", to_island, link.to_world, link.counts),),
    )
    run = synthetic_run.begin(base, asked, lab)
    captures = {name: _Capture(run, name) for name in ("world", "island", "link-sat")}
    logs = [(run.logs / f"flows-i{i}.csv").open("w") for i in range(1, 7)]
    for log in logs:
        log.write("channel,flow,server,size_bytes,received_bytes,start_ns,connected_ns,first_byte_ns,end_ns,outcome\n")
    first_flow = 0
    for begin in range(0, seconds, _CHUNK_S):
        flows = _flows(random, min(_CHUNK_S, seconds - begin), to_island.rate.bit_s)
        start_ns = synthetic_run.START_NS + begin * SECOND
        _packets(random, flows, start_ns, first_flow, captures)
        _log_flows(flows, start_ns, first_flow, logs)
        first_flow += len(flows["size"])
    for each in (*captures.values(), *logs):
        each.close()
    _counters(run, seconds, {name: capture.packets for name, capture in captures.items()})
    return run


class _Capture:
    """A compressed capture that grows."""

    def __init__(self, run: RunDir, name: str) -> None:
        self.packets = 0
        self._file = (run.captures / f"{name}.pcap.zst").open("wb")
        self._out: Any = zstandard.ZstdCompressor(level=1).stream_writer(self._file)
        self._out.write(_HEADER)

    def write(self, frames: "np.ndarray[Any, np.dtype[np.void]]", t_ns: Numbers) -> None:
        """Append frames at these instants, which need not be in order."""
        order = np.argsort(t_ns, kind="stable")
        ordered = frames[order]
        ordered["sec"], ordered["nsec"] = np.divmod(t_ns[order], SECOND)
        self._out.write(ordered.tobytes())
        self.packets += len(ordered)

    def close(self) -> None:
        self._out.close()
        self._file.close()


def _flows(random: np.random.Generator, seconds: int, rate_bit_s: int) -> dict[str, Numbers]:
    """Flows that begin and end within so many seconds: sizes of a heavy tail, begins, durations, servers."""
    count = max(1, round(_LOAD * rate_bit_s / 8 * seconds / _MEAN_BYTES))
    size = np.minimum(1 + (random.pareto(1.1, count) * 4000).astype(np.int64), 4_000_000)
    size = np.maximum(1, size * (count * _MEAN_BYTES) // size.sum())
    segments = -(-size // _SEGMENT)
    room = max(1, seconds - 4) * SECOND
    start = random.integers(0, room // 2, count)
    gap = np.minimum(room // 2 // segments, 12_000_000)
    server = random.integers(0, 6, count)
    return {"size": size, "segments": segments, "start": start, "gap": gap, "server": server}


def _packets(
    random: np.random.Generator, flows: dict[str, Numbers], start_ns: int, first: int, captures: dict[str, _Capture]
) -> None:
    """Handshakes, data, acknowledgements and ends of flows, and the ping series, in all captures."""
    count, segments = len(flows["size"]), flows["segments"]
    number = first + np.arange(count)
    begin = start_ns + flows["start"] + 2 * _LINK_NS
    flow = np.repeat(np.arange(count), segments)
    index = np.arange(len(flow)) - np.repeat(np.cumsum(segments) - segments, segments)
    data = begin[flow] + 2 * _LINK_NS + (index + 1) * flows["gap"][flow]
    left = np.minimum(_SEGMENT, flows["size"][flow] - index * _SEGMENT)
    last = begin + 2 * _LINK_NS + (segments + 2) * flows["gap"]
    acks = (index % 2 == 1) | (index == segments[flow] - 1)
    ending = flows["size"] + 1
    none = np.zeros(count, np.int64)
    every = np.arange(count)
    # (flows, at the world, to the island, flags, sequence number, acknowledgement, payload)
    parts: list[tuple[Numbers, Numbers, bool, int, Numbers, Numbers, Numbers]] = [
        (every, begin, False, 0x02, none, none, none),
        (every, begin + 1_000_000, True, 0x12, none, none + 1, none),
        (flow, data, True, 0x10, 1 + index * _SEGMENT, np.ones_like(flow), left),
        (flow[acks], data[acks] + 2 * _LINK_NS, False, 0x10, np.ones_like(flow[acks]),
         (1 + index * _SEGMENT + left)[acks], np.zeros_like(flow[acks])),
        (every, last, True, 0x11, ending, none + 1, none),
        (every, last + 2 * _LINK_NS, False, 0x11, none + 1, ending + 1, none),
    ]  # fmt: skip
    frames: list[Any] = []
    world: list[Numbers] = []
    island: list[Numbers] = []
    kept: list[npt.NDArray[np.bool_]] = []
    for of, t_ns, down, flags, seq, ack, payload in parts:
        frame = np.zeros(len(of), _FRAME)
        frame["kept"], frame["ethertype"], frame["version"], frame["ttl"], frame["proto"] = 54, 0x0800, 0x45, 64, 6
        frame["ip_bytes"], frame["length"] = 40 + payload, 54 + payload
        server, client = 0x0A0A0001 + flows["server"][of], 0x0A140001 + (number % 6)[of]
        port = 20000 + (number % 40000)[of]
        frame["src"], frame["dst"] = (server, client) if down else (client, server)
        frame["sport"], frame["dport"] = (synthetic_run.PORT, port) if down else (port, synthetic_run.PORT)
        frame["seq"], frame["ack"], frame["flags"], frame["offset"], frame["window"] = seq, ack, flags, 0x50, 65535
        frames.append(frame)
        world.append(t_ns)
        island.append(t_ns + _LINK_NS if down else t_ns - _LINK_NS)
        kept.append((payload == 0) | (random.random(len(of)) >= _LOST))
    all_frames = np.concatenate(frames, dtype=_FRAME)  # unasked it makes all numbers native ones
    at_world, at_island, arrived = np.concatenate(world), np.concatenate(island), np.concatenate(kept)
    captures["world"].write(all_frames, at_world)
    captures["island"].write(all_frames[arrived], at_island[arrived])
    down = arrived & (all_frames["sport"] == synthetic_run.PORT)
    captures["link-sat"].write(all_frames[down], at_island[down] - 50_000)


def _log_flows(flows: dict[str, Numbers], start_ns: int, first: int, logs: list[Any]) -> None:
    for i, size in enumerate(flows["size"].tolist()):
        begin = start_ns + int(flows["start"][i])
        end = begin + 4 * _LINK_NS + int((flows["segments"][i] + 1) * flows["gap"][i])
        server = f"10.10.0.{int(flows['server'][i]) + 1}:{synthetic_run.PORT}"
        times = f"{begin},{begin + 2 * _LINK_NS},{begin + 4 * _LINK_NS},{end}"
        logs[(first + i) % 6].write(f"{(first + i) % 20},{first + i},{server},{size},{size},{times},completed\n")


def _counters(run: RunDir, seconds: int, packets: dict[str, int]) -> None:
    """The logs of boxes, pings and the other jobs."""
    start = synthetic_run.START_NS
    with (run.path / "link.jsonl").open("w") as file:
        for line in _box_lines(start, seconds, packets):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    with (run.logs / "ping.out").open("w") as file:
        for seq in range(10 * seconds):
            sent = start + seq * SECOND // 10
            rtt = 500_500_000 + seq % 97 * 1_000_000
            file.write(f'{{"type":"reply","target":"is","seq":{seq},"sent_ns":{sent},"rtt_ns":{rtt}}}\n')
    for name, count in packets.items():
        with (run.logs / f"capture-{name}.out").open("w") as file:
            for second in range(seconds):
                counted = f'"t_ns":{start + second * SECOND},"captured_packets":{second},"dropped_packets":0'
                file.write(f'{{"type":"counters",{counted}}}\n')
            file.write(f'{{"type":"done","captured_packets":{count},"captured_bytes":0,"dropped_packets":0}}\n')
    for i in range(1, 7):
        with (run.logs / f"load-i{i}.out").open("w") as file:
            file.write(f'{{"type":"started","t_ns":{start}}}\n')
            for second in range(seconds):
                file.write(f'{{"type":"counters","t_ns":{start + second * SECOND},"active":3,"completed":{second}}}\n')
            file.write('{"type":"done","flows_completed":1,"fairness":0.99,"longest_wait_ns":4200000}\n')


_COUNTED = (
    "in_packets", "in_bytes", "out_packets", "out_bytes", "dropped_packets", "dropped_bytes", "oversize_packets",
    "queue_bytes", "queue_max_bytes", "held_packets", "idle_ns", "lateness_max_ns", "lost_after_packets",
    "lost_after_bytes", "unread_packets", "unstamped_packets", "no_checksum_packets", "clamped_packets",
    "clamped_max_ns", "stall_count", "stall_ns",
    *(f"dropped_{cause}_{unit}" for cause in COUNTER_CAUSES for unit in ("packets", "bytes")),
)  # fmt: skip


def _box_lines(start: int, seconds: int, packets: dict[str, int]) -> Iterator[dict[str, Any]]:
    came, left = packets["world"], packets["island"]

    def figures(share: float) -> dict[str, int]:
        counters = dict.fromkeys(_COUNTED, 0)
        lost = round((came - left) * share)
        counters |= {"in_packets": round(came * share), "in_bytes": round(came * share * 900), "queue_bytes": 5000}
        counters |= {"out_packets": counters["in_packets"] - lost, "out_bytes": counters["in_bytes"] - lost * 900}
        counters |= {"dropped_packets": lost, "dropped_bytes": lost * 900, "dropped_queue_packets": lost}
        return counters | {"dropped_queue_bytes": lost * 900, "queue_max_bytes": 9000, "lateness_max_ns": 90_000}

    def mark(name: str, t_ns: int) -> Iterator[dict[str, Any]]:
        way = {**figures(1.0), "lateness_p99_ns": 61_000, "lateness_histogram": [[61_000, 990], [250_000, 10]]}
        way |= {"sojourn_max_ns": 9_000_000, "sojourn_histogram": [[9_000_000, 1]], "scheduled_windows_over_rate": 0}
        common = {"box": "sat", "type": "mark", "mark": name, "id": 1, "t_ns": t_ns, "overloaded": False}
        yield {**common, "to_island": way, "to_world": way}

    yield from mark("begin", start)
    for tick in range(10 * seconds):
        share = (tick + 1) / (10 * seconds)
        t_ns = start + (tick + 1) * SECOND // 10
        way = figures(share)
        yield {"box": "sat", "type": "counters", "t_ns": t_ns, "to_island": way, "to_world": way}
        each = {name: way[name] for name in _COUNTED[:4]} | {"held_packets": 0, "lateness_max_ns": 9}
        classes = dict.fromkeys((str(101 + i) for i in range(6)), each)
        yield {"box": "delay", "type": "counters", "t_ns": t_ns, "classes": classes}
    yield from mark("end", start + (seconds + 1) * SECOND)
