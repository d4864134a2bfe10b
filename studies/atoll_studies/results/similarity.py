# SPDX-License-Identifier: Apache-2.0
"""Equal and different properties of runs: laboratory, platform, program, chains, capacities, and every setting.

Pure; reads manifests. A comparison of figures is valid only if the differences between runs are known. Each setting
of experiment and laboratory is listed once, as equal or as different; names, seed, chains and a laboratory that all of
them share are listed among the origins.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from atoll_core.codec import from_json, to_json
from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.experiment.setting_texts import (
    NO_COUNTERPART,
    Setting,
    group_by_part,
    key_within,
    part_text,
    settings_table,
    short_hash,
)
from atoll_core.experiment.traffic import ChannelAllocation
from atoll_core.lab.network import Network
from atoll_core.plural import counted
from atoll_dashboards.report import provenance

Rows = tuple[tuple[str, tuple[str, ...]], ...]
"""A name, and its text for each run."""

SEED = "seed"
"""The origin that distinguishes samples of one experiment."""

_CHANNELS = "channels"
_OF_CHANNELS = re.compile(r"traffic\.channels|traffic\.groups(\.[^.]+(\.(channels|clients))?)?")

_ORIGIN_KEYS = ("name", "seed", "chain", "branches")  # keys of an experiment that the origins have
_LAB = "lab."
_MOST_DETAILS = 12  # of one part, or of laboratories; of more the members are counted
_MOST_GROUPS = 3  # of clients with equally many channels


@dataclass(frozen=True)
class Similarity:
    """Properties of several runs, shown before their figures."""

    origins: Rows  # what each run is: experiment, laboratory, place, seed, chains, capacities, program
    described: tuple[Setting, ...]  # every setting that is not among the origins; the laboratory's if they are not one
    channels: Rows  # the channels of each client, unless the table of counts shows them

    @property
    def unlike(self) -> Rows:
        """Properties that differ, except settings, and except channels of clients that follow from a setting."""
        return tuple(row for row in self.origins if differs(row) and not self._follows_from_setting(row))

    def _follows_from_setting(self, row: tuple[str, tuple[str, ...]]) -> bool:
        """Whether a row is that of channels, and equal for all runs that ask for equally many of the same clients."""
        name, texts = row
        asked = [*zip(*(each.texts for each in self.described if _OF_CHANNELS.fullmatch(each.key)), strict=True)]
        return name == _CHANNELS and len(set(zip(asked, texts, strict=False))) == len(set(asked)) > 1

    @cached_property
    def settings(self) -> Rows:
        """Settings that differ; of a part with many differing settings, its number of members."""
        by_part = group_by_part(self.described)
        details = sum(not s.alike for part, group in by_part.items() if part.startswith(_LAB) for s in group)
        most = {part: 0 if part.startswith(_LAB) and details > _MOST_DETAILS else _MOST_DETAILS for part in by_part}
        rows = (row for part, group in by_part.items() for row in _unlike_rows(part, group, most[part]))
        return (*rows, *_channel_rows(self.channels))

    @cached_property
    def alike(self) -> tuple[tuple[str, str], ...]:
        """Equal properties, a row for each part of the descriptions."""
        by_part = group_by_part(self.described)
        equal = {part: _alike_text(part, [s for s in group if s.alike]) for part, group in by_part.items()}
        return (
            *((name, texts[0]) for name, texts in self.origins if not differs((name, texts))),
            *((part, text) for part, text in equal.items() if text),
        )

    @cached_property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """By run, its properties except the seed; runs with equal ones are samples of one group."""
        texts = [texts_of_runs for name, texts_of_runs in self.unlike if name != SEED]
        texts += [setting.texts for setting in self.described if not setting.alike]
        texts += [texts_of_runs for _, texts_of_runs in self.channels]
        return tuple(zip(*texts, strict=True)) if texts else tuple(() for _ in self.origins[0][1])

    def to_json(self) -> dict[str, Any]:
        """Every property by run; ``origins`` also has equal ones, ``unlike`` names those of them that differ."""
        return {
            "unlike": [name for name, _ in self.unlike],
            "origins": {name: list(texts) for name, texts in self.origins},
            "settings": {setting.key: list(setting.texts) for setting in self.described if not setting.alike},
            "channels": {host: list(texts) for host, texts in self.channels},
            "alike": {setting.key: setting.texts[0] for setting in self.described if setting.alike},
        }


def similarity(manifests: Sequence[Mapping[str, Any]]) -> Similarity:
    """Compare runs by their manifests. Raises KeyError for a run that ended before it had a laboratory."""
    experiments = [from_json(Experiment, manifest["experiment"]) for manifest in manifests]
    networks = [from_json(Network, manifest["network"]) for manifest in manifests]
    placements = [_placement(manifest) for manifest in manifests]
    origins = [
        {**_origins(experiment, network, placement), **_software(manifest)}
        for experiment, network, placement, manifest in zip(experiments, networks, placements, manifests, strict=True)
    ]
    described = [experiment.described(network) for experiment, network in zip(experiments, networks, strict=True)]
    settings = (s for s in settings_table("", described) if s.key.partition(".")[0] not in _ORIGIN_KEYS)
    labs = [network.described for network in networks]
    lab = (s for s in settings_table("lab", labs) if s.key != "lab.name")
    return Similarity(
        origins=_rows(origins),
        described=(*settings, *(lab if any(network != networks[0] for network in networks) else ())),
        channels=_channels_of_others(placements),
    )


def differs(row: tuple[str, tuple[str, ...]]) -> bool:
    """Return whether a row differs between runs."""
    return len(set(row[1])) > 1


def grouped(texts: Sequence[str]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return every text once, with its runs (counted from 0), in the order of the first run of each."""
    runs_by_text: dict[str, list[int]] = {}
    for run, text in enumerate(texts):
        runs_by_text.setdefault(text, []).append(run)
    return tuple((tuple(runs), text) for text, runs in runs_by_text.items())


def _rows(described: Sequence[Mapping[str, str]]) -> Rows:
    names = dict.fromkeys(name for texts in described for name in texts)
    return tuple((name, tuple(texts.get(name, NO_COUNTERPART) for texts in described)) for name in names)


def _origins(experiment: Experiment, network: Network, placement: tuple[ChannelAllocation, ...]) -> dict[str, str]:
    chains = {"chain": experiment.chain, **{f"chain {branch.name}": branch for branch in experiment.branches}}
    return {
        "experiment": experiment.name,
        "lab": f"{network.name}, SHA-256 {_lab_digest(network)}",
        "lab file": Path(network.file).name,
        SEED: str(experiment.seed),
        **{name: _hops(chain) for name, chain in chains.items()},
        **({_CHANNELS: _allocation_text(placement)} if placement else {}),
    }


def _hops(chain: Chain) -> str:
    """``tap-w - sat - tap-i``; of a branch with its traffic."""
    return (" - ".join(chain.hops) or "empty") + ("" if str(chain.carries) == "the rest" else f" for {chain.carries}")


def _software(manifest: Mapping[str, Any]) -> dict[str, str]:
    host = {"host kernel": str(manifest["host"]["kernel"])} if manifest.get("host") else {}
    return {**dict(provenance.platform(manifest)), **dict(provenance.program(manifest)), **host}


def _lab_digest(network: Network) -> str:
    """Return a digest of a laboratory, independent of its file's path and of the manifest's version."""
    return short_hash({name: part for name, part in to_json(network).items() if name != "file"})


# Settings, part by part


def _unlike_rows(part: str, settings: Sequence[Setting], most: int) -> Rows:
    unlike = [setting for setting in settings if not setting.alike]
    if len(unlike) <= most or [setting.key for setting in unlike] == [part]:
        return tuple((setting.key, setting.texts) for setting in unlike)
    return (_counted(part, tuple((key_within(part, setting), setting.texts) for setting in settings)),)


def _alike_text(part: str, alike: Sequence[Setting]) -> str:
    """The settings of a part; of a laboratory's many their number."""
    if part.startswith(_LAB) and len(alike) > _MOST_DETAILS:
        return f"{len(alike)} settings"
    return part_text(part, alike)


def _counted(part: str, settings: Rows) -> tuple[str, tuple[str, ...]]:
    """Return the number of members of a part in each run, and how many of them differ from the first run."""
    runs = range(len(settings[0][1]))
    members: dict[str, list[tuple[str, ...]]] = {}
    for name, texts in settings:
        members.setdefault(name.partition(".")[0], []).append(texts)

    def absent(of: Sequence[tuple[str, ...]], run: int) -> bool:
        return all(texts[run] == NO_COUNTERPART for texts in of)

    present = [[of for of in members.values() if not absent(of, run)] for run in runs]
    unlike = [sum(not absent(of, 0) and any(texts[0] != texts[run] for texts in of) for of in present[run])
              for run in runs]  # fmt: skip
    texts = [f"{len(present[run])}" + (f" ({unlike[run]} unlike #1)" if unlike[run] else "") for run in runs]
    return f"{part} (number)", tuple(texts)


# Channels


def _placement(manifest: Mapping[str, Any]) -> tuple[ChannelAllocation, ...]:
    allocated = manifest.get("plan", {}).get("placement", ())
    return tuple(from_json(ChannelAllocation, client) for client in allocated)


def _allocation_text(placement: tuple[ChannelAllocation, ...]) -> str:
    """Format the allocation of channels to clients: ``20 to 6 clients: 2 have 4, 4 have 3``."""
    total = sum(client.channels for client in placement)
    ordered = sorted((client.channels, client.capacity) for client in placement)[::-1]
    groups = [(*alike, len(list(some))) for alike, some in groupby(ordered)]
    capacities = sorted({client.capacity for client in placement})
    if len(groups) > _MOST_GROUPS:
        words = f"{ordered[-1][0]} to {ordered[0][0]} each"
        words += f", capacities {capacities[0]:g} to {capacities[-1]:g}" if len(capacities) > 1 else ""
    else:
        words = ", ".join(
            f"{clients} {'has' if clients == 1 else 'have'} {channels}"
            + (f" (capacity {capacity:g})" if capacities != [1.0] else "")
            for channels, capacity, clients in groups
        )
    return f"{total} to {counted(len(placement), 'client')}: {words}"


def _channels_of_others(placements: Sequence[tuple[ChannelAllocation, ...]]) -> Rows:
    """Return each run's channels by client, for runs with equal numbers but different clients."""
    if len({_allocation_text(placement) for placement in placements}) != 1:
        return ()
    return _rows([{client.host: str(client.channels) for client in placement} for placement in placements])


def _channel_rows(channels: Rows) -> Rows:
    unlike = tuple((f"channels of {host}", texts) for host, texts in channels if differs((host, texts)))
    return unlike if len(unlike) <= _MOST_DETAILS else (_counted("channels of clients", channels),)
