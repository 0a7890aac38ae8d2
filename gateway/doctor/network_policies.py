"""The NetworkPolicies that close a port of a pod to another pod of its namespace. Pure; ingress alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
_OPERATORS = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, values: found is not None,
    "DoesNotExist": lambda found, values: found is None,
}


def blocking_policies(
    policies: Iterable[Object], pod: Mapping[str, str], peer: Mapping[str, str] | None, port: int
) -> list[str]:
    """Return the policies of a pod with these labels, if none of them lets the peer reach its TCP port.

    *peer* has labels in the same namespace; None: it is anywhere.
    """
    selecting = [one for one in policies if _has_ingress(one) and _selects(one["spec"].get("podSelector"), pod)]
    if any(_admits(rule, peer, port) for one in selecting for rule in one["spec"].get("ingress") or ()):
        return []
    return sorted(one["metadata"]["name"] for one in selecting)


def _has_ingress(policy: Object) -> bool:
    return "Ingress" in (policy["spec"].get("policyTypes") or ("Ingress",))


def _admits(rule: Object, peer: Mapping[str, str] | None, port: int) -> bool:
    ports = rule.get("ports")
    if ports and not any(_is_port(one, port) for one in ports):
        return False
    sources = rule.get("from")
    return not sources or any(_is_peer(one, peer) for one in sources)


def _is_port(told: Object, port: int) -> bool:
    if told.get("protocol", "TCP") != "TCP":
        return False
    first = told.get("port")
    # A name is one of the pod's own ports: which one, the policy does not tell.
    return not isinstance(first, int) or first <= port <= int(told.get("endPort", first))


def _is_peer(source: Object, peer: Mapping[str, str] | None) -> bool:
    if peer is None or "ipBlock" in source or "namespaceSelector" in source:
        return True  # some pods of other namespaces, or addresses, are let in: which, this does not judge
    return _selects(source.get("podSelector"), peer)


def _selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    told = selector or {}
    if any(labels.get(name) != value for name, value in (told.get("matchLabels") or {}).items()):
        return False
    return all(
        _OPERATORS[one["operator"]](labels.get(one["key"]), one.get("values") or ())
        for one in told.get("matchExpressions") or ()
    )
