# SPDX-License-Identifier: Apache-2.0
"""Experiments in requests and answers: made from a body, and as the picture that the live page draws.

A body with a ``name`` is a whole experiment in the form of experiment.yaml. A body without one is a JSON merge patch
(RFC 7396) of the applied experiment: mappings are merged, ``null`` removes a key, any other value replaces the old one.
The rules of experiment.yaml apply to the result, with the same messages.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

from atoll_controller.planner.description_warnings import description_warnings
from atoll_core.description.loader import experiment_on, resolve_document
from atoll_core.description.overrides import override, settings_under_lab
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.yaml_document import Document, label
from atoll_core.errors import DescriptionError, PlanError, shown
from atoll_core.experiment.experiment import DIRECTIONS, MAIN, Chain, Experiment, Link, TrafficSelector
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import LatencyClass, Network
from atoll_core.plan.plan import Backend
from atoll_core.platforms import MININET
from atoll_core.units import Duration
from atoll_daemon.http.http_errors import RequestError, diagnostics_answer, require_named
from atoll_daemon.http.request_parsing import BODY

Tree = dict[str, Any]

_ANY_TRAFFIC = {"world": None, "island": None, "protocol": None}
_STEERING_KEYS = frozenset({"chain", "branches", "latency"})  # keys that `changes` of an experiment modify, too


@dataclass(frozen=True, slots=True)
class DescribedExperiment:
    """An experiment with its description; paths in it are relative to ``folder``.

    ``unused_links``: settings of links that no chain contains at present, for later chains that do.
    """

    experiment: Experiment
    tree: Tree
    folder: Path
    backend: Backend
    unused_links: Tree = field(default_factory=dict[str, Any])


def described_by_file(
    document: Document, path: Path, settings: Sequence[str], backend: Backend | None = None, lab: Lab | None = None
) -> tuple[Network, DescribedExperiment]:
    """The experiment in a file, and its lab, which may be read already: ``lab``. Raises DescriptionError, PlanError."""
    overridden = override(replace(document, file=label(path)), settings)
    network, experiment = resolve_document(overridden, path, lab, settings)
    return network, DescribedExperiment(experiment, overridden.tree or {}, path.parent, backend or Backend.ENGINE)


def described_by_body(
    document: Document,
    lab: Lab,
    network: Network,
    applied: DescribedExperiment | None,
    settings: Sequence[str],
    backend: Backend | None = None,
) -> DescribedExperiment:
    """The experiment that a body describes on the lab that is up, as a whole or as a change of the applied one.

    Raises RequestError, DescriptionError, PlanError.
    """
    for setting in settings_under_lab(settings):
        raise PlanError(f"--set {shown(setting)}: the lab is up and keeps its settings; `atoll down` first")
    tree, unused_links = document.tree or {}, dict[str, Any]()
    if "name" not in tree:
        if applied is None:
            msg = (
                "no experiment is applied, so this patch has nothing to change; send a complete experiment with a name"
            )
            raise RequestError(409, msg, exit_code=1)
        tree, unused_links = _patched(applied, tree)
    folder = applied.folder if applied else Path(network.file).parent
    body = override(replace(document, tree=_with_lab(document, tree, network)), settings)
    backend = backend or (applied.backend if applied else Backend.ENGINE)
    return DescribedExperiment(experiment_on(lab, body, folder), body.tree or {}, folder, backend, unused_links)


def warnings_json(network: Network, described: DescribedExperiment) -> list[dict[str, Any]]:
    """The warnings about an experiment in the form of the API."""
    return diagnostics_answer(description_warnings(network, described.experiment, described.backend, MININET))


def apply_merge_patch(tree: Tree, patch: Mapping[str, Any]) -> Tree:
    """The tree with a merge patch applied (RFC 7396)."""
    result = copy.deepcopy(tree)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old: Any = result.get(key)
            result[key] = apply_merge_patch(cast("Tree", old) if isinstance(old, dict) else {}, cast("Tree", value))
        else:
            result[key] = copy.deepcopy(value)
    return result


def current_description(described: DescribedExperiment, experiment: Experiment) -> DescribedExperiment:
    """The description of the applied experiment after scheduled changes, which only modify chains and latencies."""
    if experiment is described.experiment:
        return described
    tree = _without_changes(described.tree)
    tree["chain"] = list(experiment.chain.hops)
    tree["branches"] = {
        branch.name: {"carries": carries_tree(branch.carries), "chain": list(branch.hops)}
        for branch in experiment.branches
    }
    tree["latency"] = dict(experiment.latency)
    return replace(described, experiment=experiment, tree=tree)


def carries_tree(carries: TrafficSelector) -> dict[str, str]:
    """The traffic of a chain in the form of experiment.yaml, without the keys that match any value."""
    return {key: str(part) for key, part in carries.described.items() if part is not None}


def chain_patch(name: str, chain: Sequence[str], carries: Mapping[str, str]) -> Tree:
    """The patch that changes a chain or adds a branch. Raises RequestError (422) for ``main`` with ``carries``."""
    if name != MAIN:
        return {"branches": {name: {"carries": {**_ANY_TRAFFIC, **carries}, "chain": [*chain]}}}
    if carries:
        raise RequestError(422, f"{MAIN} carries all traffic that no branch carries; remove `carries`", where="carries")
    return {"chain": [*chain]}


def removal_patch(name: str, applied: DescribedExperiment) -> Tree:
    """The patch that removes a branch. Raises RequestError: 404 for an unknown branch, 422 for ``main``."""
    if name == MAIN:
        raise RequestError(422, f"{MAIN} carries all traffic that no branch carries; it cannot be removed")
    require_named(name, [MAIN, *(branch.name for branch in applied.experiment.branches)], "chain", "chains")
    return {"branches": {name: None}}


def patch_document(patch: Tree) -> Document:
    """A patch as the body of a request."""
    return Document(BODY, patch, {(): 0}, ())


def latency_classes(network: Network) -> tuple[tuple[str, LatencyClass], ...]:
    """All latency classes with the names of their delay boxes."""
    return tuple((box.name, latency_class) for box in network.delay_boxes for latency_class in box.classes)


def _patched(applied: DescribedExperiment, patch: Tree) -> tuple[Tree, Tree]:
    """The description of the applied experiment with a patch applied, and the settings of links it does not use."""
    current_links: Tree = applied.tree.get("links") or {}
    base = _without_changes(applied.tree) if _STEERING_KEYS & patch.keys() else applied.tree
    tree = apply_merge_patch(base | {"links": {**applied.unused_links, **current_links}}, patch)
    links, patched_links = tree.get("links"), patch.get("links")
    if not isinstance(links, dict):
        return tree, {}
    names = {*_strings([tree.get(key) for key in ("chain", "branches", "changes")])}
    names |= set(cast("Tree", patched_links)) if isinstance(patched_links, dict) else set()
    used = {name: settings for name, settings in cast("Tree", links).items() if name in names}
    unused = {name: settings for name, settings in cast("Tree", links).items() if name not in names}
    return tree | {"links": used}, unused


def _strings(tree: Any) -> Iterator[str]:
    """All strings in a tree except keys."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (list, dict)):
        parts = cast("Tree", tree).values() if isinstance(tree, dict) else cast("list[Any]", tree)
        for part in parts:
            yield from _strings(part)


def _without_changes(tree: Tree) -> Tree:
    """The tree without scheduled changes, which start from chains and latencies that no longer apply."""
    return copy.deepcopy({key: part for key, part in tree.items() if key != "changes"})


def _with_lab(document: Document, tree: Tree, network: Network) -> Tree:
    """The tree with the lab that is up, and with latency classes instead of round-trip times (``90 ms`` is rtt-90)."""
    lab, up_name = tree.get("lab"), PurePosixPath(network.file).name
    if isinstance(lab, str) and PurePosixPath(lab).name != up_name:
        message = f"lab: {network.file} is up, not {lab!r}; `atoll down` first, or leave lab out"
        raise DescriptionError([document.mistake(("lab",), message)])
    latency = tree.get("latency")
    if not isinstance(latency, dict):
        return tree | {"lab": network.file}
    servers = {
        server: _class_of(value, network) if isinstance(value, str) else value
        for server, value in cast("Tree", latency).items()
    }
    return tree | {"lab": network.file, "latency": servers}


def _class_of(text: str, network: Network) -> str:
    try:
        rtt = Duration.parse(text)
    except ValueError:
        return text
    return next((latency_class.name for _, latency_class in latency_classes(network) if latency_class.rtt == rtt), text)


TAP = "tap"

Picture = dict[str, Any]


def picture(network: Network, experiment: Experiment | None, place: str, run: dict[str, Any] | None = None) -> Picture:
    """The data of a lab, with the applied experiment and the run in progress, if there are any."""
    links = {link.box: link for link in experiment.links} if experiment else {}
    rtts = {latency_class.name: latency_class.rtt.ns for _, latency_class in latency_classes(network)}
    latency = experiment.latency if experiment else ()
    return {
        "lab": network.name,
        "experiment": experiment.name if experiment else None,
        "place": place,
        "hosts": [{"name": host.name, "role": host.role.value, "ip": str(host.address)} for host in network.hosts],
        "chains": [_chain_json(chain, network) for chain in experiment.chains] if experiment else [],
        "boxes": {
            box.name: {
                "kind": box.kind.name,
                "is_link": box.is_link,
                **_directions_json(links.get(box.name)),
                **_figures_json(box.kind),
            }
            for box in network.boxes
        },
        "latencies": {server: {"class": name, "rtt_ns": rtts[name]} for server, name in latency},
        "classes": rtts,
        "run": run,
    }


def _chain_json(chain: Chain, network: Network) -> dict[str, Any]:
    boxes = {box.name: box for box in network.boxes}
    hops = [(hop, boxes.get(hop)) for hop in chain.hops]
    return {
        "name": chain.name,
        "hops": [
            {"name": hop, "kind": box.kind.name if box else TAP, "is_link": bool(box and box.is_link)}
            for hop, box in hops
        ],
        "carries": carries_tree(chain.carries),
    }


def _figures_json(kind: BoxKind) -> dict[str, Any]:
    """The metrics that boxes of a kind have of their own; empty for those without any."""
    parts = {"counters": kind.counters, "levels": kind.levels}
    return {
        part: [{"name": figure.name, "unit": figure.unit, "what": figure.meaning} for figure in fields]
        for part, fields in parts.items()
        if fields
    }


def _directions_json(link: Link | None) -> dict[str, Any]:
    """The configuration of a link by direction; empty for other boxes and for links that no chain contains."""
    if link is None:
        return {}
    settings = {direction: getattr(link, direction) for direction in DIRECTIONS}
    return {
        direction: {"rate_bit_s": conf.rate.bit_s, "delay_ns": conf.delay.ns, "queue_bytes": conf.queue.bytes}
        for direction, conf in settings.items()
    }
