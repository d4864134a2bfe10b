# SPDX-License-Identifier: Apache-2.0
"""Text for errors of switches (7.5.4 of OpenFlow 1.3.5): the specification's names, and advice for users."""

from atoll_controller.openflow import runtime_adapter

_ofp = runtime_adapter.module("ofproto.ofproto_v1_3")

_ADVICE = {
    "OFPFMFC_TABLE_FULL": "the table is full: join prefixes, or spread the hosts over more switches",
    "OFPFMFC_BAD_TABLE_ID": "there is no such table, or it takes no entries: is the switch's driver right in lab.yaml?",
    "OFPFMFC_EPERM": "the switch does not let controllers change this table: look at its OpenFlow configuration",
    "OFPFMFC_OVERLAP": "it overlaps an entry of the same priority",
    "OFPBAC_BAD_OUT_PORT": "an output port is not there: compare lab.yaml's ports with `atoll switches`",
    "OFPBAC_BAD_TYPE": "the switch does not know the action: is its driver right in lab.yaml?",
    "OFPBAC_MATCH_INCONSISTENT": "the actions do not suit what is matched, as popping a tag of untagged frames",
    "OFPBAC_BAD_SET_ARGUMENT": "the VLAN id is out of range: 1 to 4094",
    "OFPBAC_TOO_MANY": "more actions than the switch takes: let taps share a port, or tap elsewhere",
    "OFPBAC_UNSUPPORTED_ORDER": "the switch cannot do the actions in this order: put the tap on another switch",
    "OFPBIC_UNSUP_INST": "the table does not apply actions: is the switch's driver right in lab.yaml?",
    "OFPBIC_BAD_TABLE_ID": "there is no such table: is the switch's driver right in lab.yaml?",
    "OFPBMC_BAD_FIELD": "the table does not match this field: is the switch's driver right in lab.yaml?",
    "OFPBMC_BAD_WILDCARDS": "the table wants other fields matched as well: is the switch's driver right in lab.yaml?",
    "OFPBMC_BAD_VALUE": "a matched number is out of range, such as a port that is not there",
    "OFPBRC_EPERM": "the switch does not allow it to this controller: look at its OpenFlow configuration",
    "OFPBRC_IS_SLAVE": "another controller is master of this switch: let it have one controller",
    "OFPBRC_BAD_TABLE_ID": "there is no such table: is the switch's driver right in lab.yaml?",
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
