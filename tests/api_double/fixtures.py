"""Fixtures of the API double, for the folders that import them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes.client import Configuration

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient

from .server import ApiDouble


def configuration_of(double: ApiDouble) -> Configuration:
    configuration = Configuration()
    configuration.host = double.url
    return configuration


@pytest.fixture
def a_double() -> Iterator[ApiDouble]:
    double = ApiDouble()
    yield double
    double.close()


@pytest.fixture
def a_client(a_double: ApiDouble) -> ClusterClient:
    """A client of the double, for a test that closes it."""
    return ClusterClient(configuration_of(a_double))
