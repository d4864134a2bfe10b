# SPDX-License-Identifier: Apache-2.0
"""Changes of boxes while they run: requests to their jobs (docs/contracts.md), or the renewal of a box. Pure."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from atoll_controller.planner.box_config import box_uses
from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.link_config import direction_config
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import DEFAULT_LIMITS, DIRECTIONS, Experiment, SteeringVersion
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_core.plan.plan import UNLIMITED, Backend, HostSettings, JobSpec
from atoll_core.plan.tc_settings import USE_ENGINE, link_settings
from atoll_core.units import Duration

Config = dict[str, Any]
Request = dict[str, Any]

_SETTABLE = {
    "link": (*DIRECTIONS, "counts", "stall_from_ns", "seed"),
    "delay": ("stall_from_ns", "seed"),
    "tc": ("setup", "expect", "link"),
}
"""Keys of configurations, by subcommand. The next run begins with another seed; until then the random numbers stay."""


def link_requests(
    network: Network,
    experiment: Experiment,
    before: SteeringVersion,
    after: SteeringVersion,
    backend: Backend,
    slack: Duration,
) -> Iterator[tuple[str, Request]]:
    """The requests without ids that change links to another version, each after the name of the link's box.

    Raises PlanError if the backend cannot do that.
    """
    for old_link, link, changing_link in zip(before.links, after.links, experiment.links_over_time, strict=False):
        if old_link == link:
            continue
        if backend is Backend.TC:
            box = network.box(link.box)
            old, new = (link_settings(box, item, slack, changing_link).config for item in (old_link, link))
            try:
                yield link.box, _tc_request(old, new)
            except PlanError:
                raise PlanError(
                    f"links.{link.box}: the tc backend cannot add or remove a loss before the queue while a link runs; "
                    f"give it a loss of 0 % before, or use {USE_ENGINE}"
                ) from None
        else:
            pairs = {direction: (getattr(old_link, direction), getattr(link, direction)) for direction in DIRECTIONS}
            changed = {direction: direction_config(new) for direction, (old, new) in pairs.items() if old != new}
            yield link.box, {"op": "set", **changed}


def running_changes(old: JobSpec, new: JobSpec, *, drifted: bool = False) -> list[Request]:
    """The requests that give a program the configuration of ``new`` while it runs; its limits are raised before.

    ``drifted``: it has other settings than those of ``old``, which other requests have changed. Raises PlanError with
    the keys that the program cannot take while it runs.
    """
    old_config, new_config, subcommand = old.config, new.config, new.argv[-1]
    is_other_program = replace(old, config=None, limits=UNLIMITED) != replace(new, config=None, limits=UNLIMITED)
    if old_config is None or new_config is None:
        raise PlanError("another program")
    if is_other_program:
        raise PlanError("another backend")
    kinds = {kind.subcommand: kind.settable for kind in BoxKind.registered.values()}
    settable = {**kinds, **_SETTABLE}.get(subcommand, ())
    if "stall_from_ns" in settable:
        default = {"stall_from_ns": DEFAULT_LIMITS.stall.ns}
        old_config, new_config = default | old_config, default | new_config
    changed = changed_keys(old_config, new_config, settable)
    if "setup" in changed or (drifted and "setup" in new_config):
        return [_tc_request(old_config, new_config, send_all=drifted)]
    sent = [key for key in new_config if (key in changed and key != "seed") or (drifted and key in DIRECTIONS)]
    return [{"op": "set", **{key: new_config[key] for key in sent}}] if sent else []


def changed_keys(old: Config, new: Config, settable: Collection[str]) -> list[str]:
    """The keys whose values differ. Raises PlanError naming those of them that are not settable."""
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if fixed := [key for key in keys if key not in settable or key not in new]:
        for unit in ("_ns", "_bytes", "_bit_s"):  # which descriptions do not have
            fixed = [key.removesuffix(unit) for key in fixed]
        raise PlanError(", ".join(fixed))
    return keys


def _tc_request(old: Config, new: Config, *, send_all: bool = False) -> Request:
    """The changed disciplines. One that holds packets keeps room for those that came before."""
    pairs = list(zip(_disciplines(old), _disciplines(new), strict=False))
    if len(old["setup"]["tc"]) != len(new["setup"]["tc"]) or any(one[0] != other[0] for one, other in pairs):
        raise PlanError(", ".join(_for_other_disciplines(old["link"], new["link"])) or "queueing disciplines")
    changed = [
        (location, *_with_limit(old_expected["options"].get("limit", 0), options, expected))
        for (_, old_options, old_expected), (location, options, expected) in pairs
        if options != old_options or (options and send_all)
    ]
    expect = [expected for _, _, expected in changed]
    limits = {(each["dev"], each["handle"]): each["options"].get("limit") for each in expect}
    counters: Config = {}
    for direction, each in new["link"].items():
        delay = each["delay"]
        limit = limits.get((delay["dev"], delay["handle"]), delay["limit_packets"])
        counters[direction] = {**each, "delay": {**delay, "limit_packets": limit}}
    lines = [f"{location.replace(' add ', ' change ', 1)} {options}" for location, options, _ in changed]
    return {"op": "set", "tc": lines, "expect": expect, "link": counters}


def _for_other_disciplines(old: Config, new: Config) -> Iterator[str]:
    """The settings for which a link has other disciplines, by the sources of its counters."""
    if any(counters["in_header_bytes"] != old[direction]["in_header_bytes"] for direction, counters in new.items()):
        yield "counts"
    for direction, counters in new.items():
        was, where = old[direction], direction.replace("_", " the ")
        if ("low_priority" in was) != ("low_priority" in counters):
            yield f"low_priority {where}"
        if was["queue"] != counters["queue"]:
            yield f"loss before the queue {where}"


def _with_limit(least: int, options: str, expected: Config) -> tuple[str, Config]:
    """The options and the expected output of a discipline; a netem with room for this number of packets at least."""
    limit = expected["options"].get("limit")
    if expected["kind"] != "netem" or limit >= least:
        return options, expected
    expected = {**expected, "options": {**expected["options"], "limit": least}}
    return options.replace(f"limit {limit} ", f"limit {least} ", 1), expected


def _disciplines(config: Config) -> Iterator[tuple[str, str, Config]]:
    """Each line of tc up to the kind of discipline, its options, and the expected output of tc; other lines whole."""
    expected = iter(config["expect"])
    for line in config["setup"]["tc"]:
        if " handle " not in line:
            yield line, "", {}
            continue
        each = next(expected)
        location, kind, options = f"{line} ".partition(f" {each['kind']} ")
        yield f"{location}{kind}".strip(), options.strip(), each


def renewed_boxes(network: Network, old: Experiment, new: Experiment) -> frozenset[str]:
    """The boxes that chains of both versions pass, but with another program or another set of packet rules.

    Routes and sysctls of a machine, and settings that the program takes while it runs, are not among the reasons: they
    change without a loss while packets pass.
    """
    if (old.boxes, old.all_chains) == (new.boxes, new.all_chains):
        return frozenset()
    old_hops, new_hops = (frozenset(hop for chain in version.chains for hop in chain.hops) for version in (old, new))
    before, after = (_programs(network, version) for version in (old, new))
    shared = old_hops & new_hops & (before.keys() | after.keys())
    return frozenset(name for name in shared if not _keeps_running(network, name, before.get(name), after.get(name)))


def _keeps_running(network: Network, box: str, old: "_Program | None", new: "_Program | None") -> bool:
    if old is None or new is None or old[1] != new[1]:
        return old == new
    with contextlib.suppress(PlanError):
        changed_keys(old[0], new[0], network.box(box).kind.settable)
        return True
    return False


_Program = tuple[dict[str, Any], HostSettings]


def _programs(network: Network, experiment: Experiment) -> dict[str, _Program]:
    """The configuration of each box's program, and the settings of the box's machine that bring packets to it."""
    uses = box_uses(network, experiment)
    machines = {each.host: each for each in host_settings(network, experiment)} if uses else {}
    return {
        box.name: (box.kind.configuration(uses[box.name]), without_routes(machines[box.name]))
        for box in network.boxes
        if box.name in uses
    }


def without_routes(settings: HostSettings) -> HostSettings:
    """The settings of a machine but for routes and sysctls."""
    interfaces = tuple(replace(each, routes=()) for each in settings.interfaces)
    return replace(settings, interfaces=interfaces, sysctls=())
