# SPDX-License-Identifier: Apache-2.0
"""Text for errors of switches (7.5.4 of OpenFlow 1.3.5): the specification's names, and advice for users."""

from atoll_controller.openflow import runtime_adapter

_ofp = runtime_adapter.module("ofproto.ofproto_v1_3")

_ADVICE = {
    "OFPFMFC_TABLE_FULL": "the table is full: combine prefixes, or attach hosts to more switches",
    "OFPFMFC_BAD_TABLE_ID": "the table does not exist or accepts no entries: check the switch's driver in lab.yaml",
    "OFPFMFC_EPERM": "the switch does not allow controllers to change this table: check its OpenFlow configuration",
    "OFPFMFC_OVERLAP": "it overlaps an entry of the same priority",
    "OFPBAC_BAD_OUT_PORT": "an output port does not exist: compare the ports in lab.yaml with `atoll switches`",
    "OFPBAC_BAD_TYPE": "the switch does not know the action: check its driver in lab.yaml",
    "OFPBAC_MATCH_INCONSISTENT": "the actions do not fit the match, for example popping a tag of untagged frames",
    "OFPBAC_BAD_SET_ARGUMENT": "the VLAN id is out of range: 1 to 4094",
    "OFPBAC_TOO_MANY": "more actions than the switch supports: let taps share a port, or move a tap to another switch",
    "OFPBAC_UNSUPPORTED_ORDER": "the switch does not support the actions in this order: move the tap to another switch",
    "OFPBIC_UNSUP_INST": "the table does not support apply-actions: check the switch's driver in lab.yaml",
    "OFPBIC_BAD_TABLE_ID": "the table does not exist: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_FIELD": "the table cannot match this field: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_WILDCARDS": "the table requires more fields in the match: check the switch's driver in lab.yaml",
    "OFPBMC_BAD_VALUE": "a matched value is out of range, for example a port that does not exist",
    "OFPBRC_EPERM": "the switch does not allow this to this controller: check its OpenFlow configuration",
    "OFPBRC_IS_SLAVE": "another controller is master of this switch: configure only one controller there",
    "OFPBRC_BAD_TABLE_ID": "the table does not exist: check the switch's driver in lab.yaml",
}


def error_name(kind: int, code: int) -> str:
    """The error in the specification's names: ``OFPET_BAD_ACTION OFPBAC_BAD_OUT_PORT``."""
    words = (_ofp.ofp_error_type_to_str(kind), _ofp.ofp_error_code_to_str(kind, code))
    return " ".join(word.split("(")[0] for word in words)


def error_words(kind: int, code: int) -> str:
    """The error's name and, if there is any, its meaning and remedy."""
    name = error_name(kind, code)
    advice = _ADVICE.get(name.split()[-1])
    return f"{name} ({advice})" if advice else name
